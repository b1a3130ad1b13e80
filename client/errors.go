package client

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/session"
)

// Reasons of errors; see Error.
const (
	ReasonThrottled       = string(model.ReasonThrottled)
	ReasonDiskFull        = string(model.ReasonDiskFull)
	ReasonNoLeader        = string(model.ReasonNoLeader)
	ReasonStaleMap        = string(model.ReasonStaleMap)
	ReasonNotLeader       = string(model.ReasonNotLeader)
	ReasonSequenceGap     = string(model.ReasonSequenceGap)
	ReasonSequenceTooOld  = string(model.ReasonSequenceTooOld)
	ReasonSequenceUnknown = string(model.ReasonSequenceUnknown)
	ReasonFenced          = string(model.ReasonFenced)
	ReasonOffsetTooOld    = string(model.ReasonOffsetTooOld)
	ReasonOffsetTooNew    = string(model.ReasonOffsetTooNew)
	ReasonUnknownOutcome  = string(model.ReasonUnknownOutcome)
	// ReasonNotSent: no node could be reached, so nothing happened.
	ReasonNotSent = string(session.ReasonNotSent)
)

// Error is what a call failed with. Use errors.As to look into it.
type Error struct {
	Code    connect.Code
	Reason  string // machine-readable, one of the constants; may be empty
	Message string
	// RetryAfter is how long to wait before asking again; 0: no hint.
	RetryAfter time.Duration
	Field      string // of the request, with an invalid argument
	Expected   uint64 // SEQUENCE_*: the expected sequence; FENCED: what is current
	Start, End uint64 // OFFSET_*: what can be read is [Start, End)
	// Maybe says that the call may have had its effect all the same.
	Maybe bool

	leaderAddress string
	cause         error
}

// Error implements error.
func (e *Error) Error() string {
	text := e.Message
	if text == "" {
		text = e.Code.String()
	}
	if e.Reason != "" {
		return e.Reason + ": " + text
	}
	return text
}

// Unwrap gives what went wrong below, such as a connection's error.
func (e *Error) Unwrap() error { return e.cause }

// Retryable says whether the same call may succeed later, unchanged.
func (e *Error) Retryable() bool {
	return e.Code == connect.CodeUnavailable || e.Code == connect.CodeResourceExhausted || e.model().Retryable()
}

func (e *Error) model() *model.Error {
	return &model.Error{
		Code: model.Code(e.Code), Reason: model.Reason(e.Reason), Message: e.Message, RetryAfter: e.RetryAfter,
		Expected: e.Expected, Start: model.Offset(e.Start), End: model.Offset(e.End), Field: e.Field,
	}
}

func fromModel(e *model.Error, maybe bool) *Error {
	return &Error{
		Code: connect.Code(e.Code), Reason: string(e.Reason), Message: e.Message, RetryAfter: e.RetryAfter,
		Expected: e.Expected, Start: uint64(e.Start), End: uint64(e.End), Field: e.Field, Maybe: maybe,
	}
}

// wrap makes an *Error of what a call returned; nil stays nil.
func wrap(err error) *Error {
	if err == nil {
		return nil
	}
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	e := &Error{Code: connect.CodeUnknown, Message: err.Error(), cause: err}
	var ce *connect.Error
	switch {
	case errors.As(err, &ce):
		e.Code, e.Message = ce.Code(), ce.Message()
		for _, d := range ce.Details() {
			if m, err := connectproto.UnmarshalErrorDetail(d); err == nil {
				e.detail(m)
			}
		}
	case errors.Is(err, context.DeadlineExceeded):
		e.Code = connect.CodeDeadlineExceeded
	case errors.Is(err, context.Canceled):
		e.Code = connect.CodeCanceled
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		e.Code, e.Reason, e.Message = connect.CodeUnavailable, ReasonNotSent, dial.Error()
	}
	return e
}

// detail reads one of the details of the broker's errors.
func (e *Error) detail(m proto.Message) {
	switch m := m.(type) {
	case *errdetails.ErrorInfo:
		e.Reason = m.GetReason()
		for name, value := range m.GetMetadata() {
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				continue
			}
			switch name {
			case "expectedSequence", "current":
				e.Expected = n
			case "start":
				e.Start = n
			case "end":
				e.End = n
			}
		}
	case *errdetails.RetryInfo:
		e.RetryAfter = m.GetRetryDelay().AsDuration()
	case *errdetails.BadRequest:
		for _, v := range m.GetFieldViolations() {
			e.Field = v.GetField()
			break
		}
	case *tapedeckv1.NotLeader:
		e.leaderAddress = m.GetAddress()
	}
}

// fromStatus reads the error of one part of an answer; nil: none.
func fromStatus(s *status.Status) *Error {
	if s == nil || s.GetCode() == 0 {
		return nil
	}
	e := &Error{Code: connect.Code(s.GetCode()), Message: s.GetMessage()}
	for _, d := range s.GetDetails() {
		if m, err := d.UnmarshalNew(); err == nil {
			e.detail(m)
		}
	}
	return e
}

func modelStatus(s *status.Status) *model.Error {
	if e := fromStatus(s); e != nil {
		return e.model()
	}
	return nil
}
