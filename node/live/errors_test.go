package live

import (
	"errors"
	"maps"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/api/tapedeck/v1/tapedeckv1connect"
	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// errorRow is a row of the error table.
type errorRow struct {
	name     string
	from     *model.Error
	code     connect.Code
	reason   string
	metadata map[string]string
	retry    time.Duration
	leader   string // NotLeader's, with its address
	field    string // BadRequest's
}

func errorTable() []errorRow {
	sequence := func(r model.Reason) *model.Error {
		return &model.Error{Code: model.FailedPrecondition, Reason: r, Message: "sequence", Expected: 7}
	}
	offset := func(r model.Reason) *model.Error {
		return &model.Error{Code: model.OutOfRange, Reason: r, Message: "offset", Start: 10, End: 20}
	}
	expected := map[string]string{"expectedSequence": "7"}
	bounds := map[string]string{"start": "10", "end": "20"}
	reasoned := model.Reasoned
	return []errorRow{
		{name: "throttled", from: reasoned(model.ResourceExhausted, model.ReasonThrottled, time.Second, "slow down"),
			code: connect.CodeResourceExhausted, reason: "THROTTLED", retry: time.Second},
		{name: "throttled without a hint", from: reasoned(model.ResourceExhausted, model.ReasonThrottled, 0, "slow down"),
			code: connect.CodeResourceExhausted, reason: "THROTTLED", retry: defaultRetry},
		{name: "disk full", from: reasoned(model.ResourceExhausted, model.ReasonDiskFull, 0, "full"),
			code: connect.CodeResourceExhausted, reason: "DISK_FULL", retry: defaultRetry},
		{name: "no leader", from: reasoned(model.Unavailable, model.ReasonNoLeader, 0, "none"),
			code: connect.CodeUnavailable, reason: "NO_LEADER", retry: defaultRetry},
		{name: "stale map", from: reasoned(model.Unavailable, model.ReasonStaleMap, 0, "old"),
			code: connect.CodeUnavailable, reason: "STALE_MAP", retry: defaultRetry},
		{name: "not leader",
			from: &model.Error{Code: model.FailedPrecondition, Reason: model.ReasonNotLeader, Message: "n2 leads", Leader: "n2"},
			code: connect.CodeFailedPrecondition, reason: "NOT_LEADER", leader: "n2",
			metadata: map[string]string{"leader": "n2", "address": "127.0.0.1:2"}},
		{name: "gap", from: sequence(model.ReasonSequenceGap),
			code: connect.CodeFailedPrecondition, reason: "SEQUENCE_GAP", metadata: expected},
		{name: "too old", from: sequence(model.ReasonSequenceTooOld),
			code: connect.CodeFailedPrecondition, reason: "SEQUENCE_TOO_OLD", metadata: expected},
		{name: "unknown", from: sequence(model.ReasonSequenceUnknown),
			code: connect.CodeFailedPrecondition, reason: "SEQUENCE_UNKNOWN", metadata: expected},
		{name: "fenced",
			from: &model.Error{Code: model.FailedPrecondition, Reason: model.ReasonFenced, Message: "fenced", Expected: 3},
			code: connect.CodeFailedPrecondition, reason: "FENCED", metadata: map[string]string{"current": "3"}},
		{name: "offset too old", from: offset(model.ReasonOffsetTooOld),
			code: connect.CodeOutOfRange, reason: "OFFSET_TOO_OLD", metadata: bounds},
		{name: "offset too new", from: offset(model.ReasonOffsetTooNew),
			code: connect.CodeOutOfRange, reason: "OFFSET_TOO_NEW", metadata: bounds},
		{name: "not found", from: model.Errorf(model.NotFound, `no topic "ordrs"; did you mean "orders"?`),
			code: connect.CodeNotFound},
		{name: "exists", from: model.Errorf(model.AlreadyExists, "exists"), code: connect.CodeAlreadyExists},
		{name: "invalid", from: model.Invalid("messages[3].key", "is long"),
			code: connect.CodeInvalidArgument, field: "messages[3].key"},
		{name: "unauthenticated", from: model.Errorf(model.Unauthenticated, "who?"), code: connect.CodeUnauthenticated},
		{name: "denied", from: model.Errorf(model.PermissionDenied, "no"), code: connect.CodePermissionDenied},
		{name: "outcome not known after the deadline",
			from: reasoned(model.DeadlineExceeded, model.ReasonUnknownOutcome, 0, "?"),
			code: connect.CodeDeadlineExceeded, reason: "UNKNOWN_OUTCOME"},
		{name: "outcome not known, node gone",
			from: reasoned(model.Unavailable, model.ReasonUnknownOutcome, time.Second, "?"),
			code: connect.CodeUnavailable, reason: "UNKNOWN_OUTCOME", retry: time.Second},
		{name: "not in this version", from: model.Errorf(model.Unimplemented, "no"), code: connect.CodeUnimplemented},
	}
}

// details are an error's, by type.
type details struct {
	info  *errdetails.ErrorInfo
	retry *errdetails.RetryInfo
	bad   *errdetails.BadRequest
	not   *tapedeckv1.NotLeader
}

func detailsOf(t *testing.T, e *connect.Error) (d details) {
	t.Helper()
	for _, raw := range e.Details() {
		m, err := connectproto.UnmarshalErrorDetail(raw)
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.(type) {
		case *errdetails.ErrorInfo:
			d.info = m
		case *errdetails.RetryInfo:
			d.retry = m
		case *errdetails.BadRequest:
			d.bad = m
		case *tapedeckv1.NotLeader:
			d.not = m
		default:
			t.Errorf("unexpected detail %T", m)
		}
	}
	return d
}

func (row *errorRow) check(t *testing.T, err error) {
	t.Helper()
	var e *connect.Error
	if !errors.As(err, &e) || e.Code() != row.code || e.Message() != row.from.Message {
		t.Fatalf("got %v, want %v with %q", err, row.code, row.from.Message)
	}
	d := detailsOf(t, e)
	if d.info.GetReason() != row.reason || !maps.Equal(d.info.GetMetadata(), row.metadata) {
		t.Errorf("reason %q %v, want %q %v", d.info.GetReason(), d.info.GetMetadata(), row.reason, row.metadata)
	}
	if row.reason != "" && d.info.GetDomain() != "tapedeck" {
		t.Errorf("domain is %q", d.info.GetDomain())
	}
	if got := d.retry.GetRetryDelay().AsDuration(); got != row.retry {
		t.Errorf("retry after %v, want %v", got, row.retry)
	}
	if d.not.GetLeader() != row.leader || row.leader != "" && d.not.GetAddress() != "127.0.0.1:2" {
		t.Errorf("leader %q at %q, want %q", d.not.GetLeader(), d.not.GetAddress(), row.leader)
	}
	field := ""
	if d.bad != nil {
		field = d.bad.GetFieldViolations()[0].GetField()
	}
	if field != row.field {
		t.Errorf("field %q, want %q", field, row.field)
	}
}

func TestErrorTableReachesClientsOfEveryProtocol(t *testing.T) {
	var current *model.Error
	n := startFake(t, &fakeHost{answer: func(core.Request) (call.ClientResult, *model.Error) { return nil, current }})
	protocols := map[string][]connecthttp.Option{
		"connect": nil, "json": {connecthttp.WithProtoJSON()},
		"grpc": {connecthttp.WithGRPC()}, "grpcweb": {connecthttp.WithGRPCWeb()},
	}
	for name, options := range protocols {
		client := tapedeckv1connect.NewPubSubServiceClient(n.dial(options...))
		for _, row := range errorTable() {
			t.Run(name+"/"+row.name, func(t *testing.T) {
				current = row.from
				_, err := client.Ack(t.Context(), &tapedeckv1.AckRequest{Subscription: "t/s"})
				row.check(t, err)
			})
		}
	}
}

func TestErrorOfOneMessageOrPartitionHasTheSameForm(t *testing.T) {
	rows := errorTable()
	n := startFake(t, &fakeHost{answer: func(r core.Request) (call.ClientResult, *model.Error) {
		switch r.Call.(type) {
		case *call.Publish:
			return &call.PublishResult{Results: []call.MessageResult{{Partition: 1, Err: rows[0].from}, {Offset: 4}}}, nil
		default:
			return &call.AckCallResult{Results: []call.AckResult{{Partition: 2, Cursor: 9, Err: rows[9].from}}}, nil
		}
	}})
	client := tapedeckv1connect.NewPubSubServiceClient(n.dial())
	published, err := client.Publish(t.Context(), &tapedeckv1.PublishRequest{Topic: "t"})
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range []int{0, 1} {
		if has := published.GetResults()[s].GetError() != nil; has != (i == 0) {
			t.Errorf("message %d: error %v", i, published.GetResults()[s].GetError())
		}
	}
	acked, err := client.Ack(t.Context(), &tapedeckv1.AckRequest{Subscription: "t/s"})
	if err != nil {
		t.Fatal(err)
	}
	status := acked.GetResults()[0].GetError()
	var info errdetails.ErrorInfo
	if len(status.GetDetails()) != 1 || status.GetDetails()[0].UnmarshalTo(&info) != nil ||
		info.GetReason() != "FENCED" || status.GetCode() != int32(connect.CodeFailedPrecondition) {
		t.Errorf("the partition's error is %v", status)
	}
}

func TestAPublishThatFailsAlikeForAllFailsAsACall(t *testing.T) {
	row := errorTable()[3]
	n := startFake(t, &fakeHost{answer: func(core.Request) (call.ClientResult, *model.Error) {
		again := *row.from
		return &call.PublishResult{Results: []call.MessageResult{{Err: row.from}, {Err: &again}}}, nil
	}})
	_, err := tapedeckv1connect.NewPubSubServiceClient(n.dial()).Publish(t.Context(), &tapedeckv1.PublishRequest{})
	row.check(t, err)
}

// What waits for a dead-letter topic is a partition's state, and its lag is known
// all the same; an error that hides the lag is told before it.
func TestADeadLetterThatWaitsIsThePartitionsState(t *testing.T) {
	n := startFake(t, &fakeHost{})
	waits := call.SubscriptionPartition{CursorState: call.CursorState{Waits: "waits: for dead"}, Lag: 3}
	both := waits
	both.Err = model.Errorf(model.Unavailable, "no leader")
	got := n.fromGetSubscription(&call.GetSubscriptionResult{
		Partitions: []call.SubscriptionPartition{{}, waits, both}}, time.Hour, time.Unix(0, 0)).GetPartitions()
	if got[0].GetError() != nil || got[1].GetLag() != 3 || got[1].GetError().GetMessage() != "waits: for dead" ||
		got[1].GetError().GetCode() != int32(connect.CodeFailedPrecondition) ||
		got[2].GetError().GetMessage() != "no leader" {
		t.Errorf("%v", got)
	}
}
