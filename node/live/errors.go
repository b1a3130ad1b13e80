package live

import (
	"strconv"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/core/model"
)

// ErrorDomain is ErrorInfo's domain in every error of a broker.
const ErrorDomain = "tapedeck"

// defaultRetry is the hint of retryable errors whose origin gave none.
const defaultRetry = 100 * time.Millisecond

// details are what an error carries beside code and text.
func (n *Node) details(e *model.Error) []proto.Message {
	var out []proto.Message
	if e.Reason != "" {
		out = append(out, &errdetails.ErrorInfo{
			Reason: string(e.Reason), Domain: ErrorDomain, Metadata: n.metadata(e),
		})
	}
	if retry := retryAfter(e); retry > 0 {
		out = append(out, &errdetails.RetryInfo{RetryDelay: durationpb.New(retry)})
	}
	if e.Reason == model.ReasonNotLeader {
		out = append(out, &tapedeckv1.NotLeader{Leader: string(e.Leader), Address: n.book.address(e.Leader)})
	}
	if e.Code == model.InvalidArgument && e.Field != "" {
		out = append(out, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: e.Field, Description: e.Message},
		}})
	}
	return out
}

func retryAfter(e *model.Error) time.Duration {
	if e.RetryAfter > 0 {
		return e.RetryAfter
	}
	switch e.Reason {
	case model.ReasonThrottled, model.ReasonDiskFull, model.ReasonNoLeader, model.ReasonStaleMap:
		return defaultRetry
	}
	return 0
}

// metadata is what ErrorInfo says beside the reason.
func (n *Node) metadata(e *model.Error) map[string]string {
	number := func(v uint64) string { return strconv.FormatUint(v, 10) }
	switch e.Reason {
	case model.ReasonSequenceGap, model.ReasonSequenceTooOld, model.ReasonSequenceUnknown:
		return map[string]string{"expectedSequence": number(e.Expected)}
	case model.ReasonFenced:
		return map[string]string{"current": number(e.Expected)}
	case model.ReasonOffsetTooOld, model.ReasonOffsetTooNew:
		return map[string]string{"start": number(uint64(e.Start)), "end": number(uint64(e.End))}
	case model.ReasonNotLeader:
		return map[string]string{"leader": string(e.Leader), "address": n.book.address(e.Leader)}
	}
	return nil
}

// wireError is an error as a failed call carries it.
func (n *Node) wireError(e *model.Error) error {
	n.logInternal(e)
	out := connect.NewError(connect.Code(e.Code), e.Message)
	for _, d := range n.details(e) {
		if detail, err := connectproto.NewErrorDetail(d); err == nil {
			out = out.WithDetail(detail)
		}
	}
	return out
}

// wireStatus is an error as one part of an answer carries it; nil: none.
func (n *Node) wireStatus(e *model.Error) *status.Status {
	if e == nil {
		return nil
	}
	n.logInternal(e)
	out := &status.Status{Code: int32(e.Code), Message: e.Message}
	for _, d := range n.details(e) {
		if detail, err := anypb.New(d); err == nil {
			out.Details = append(out.Details, detail)
		}
	}
	return out
}

func (n *Node) logInternal(e *model.Error) {
	if e.Code == model.Internal || e.Code == model.Unknown || e.Code == model.DataLoss {
		n.log.Error("a call failed inside", "code", uint32(e.Code), "reason", e.Reason, "error", e.Message)
	}
}
