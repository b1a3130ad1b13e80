package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/api/tapedeck/v1/tapedeckv1connect"
	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/session"
)

// fakeNode is a node that answers as its functions say.
type fakeNode struct {
	tapedeckv1connect.UnimplementedPubSubServiceHandler
	tapedeckv1connect.UnimplementedAdminServiceHandler
	address string

	mu      sync.Mutex
	batches []batch.View
	publish func(*tapedeckv1.PublishBatchRequest) (*tapedeckv1.PublishBatchResponse, error)
	topic   func() (*tapedeckv1.GetTopicResponse, error)
}

func startFake(t *testing.T) *fakeNode {
	t.Helper()
	f := &fakeNode{}
	server := connect.NewServer()
	tapedeckv1connect.RegisterPubSubServiceHandler(server, f)
	tapedeckv1connect.RegisterAdminServiceHandler(server, f)
	mux := http.NewServeMux()
	connecthttp.Mount(mux, server, connecthttp.WithCompressors())
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	f.address = strings.TrimPrefix(s.URL, "http://")
	return f
}

func (f *fakeNode) OpenProducer(context.Context, *tapedeckv1.OpenProducerRequest,
) (*tapedeckv1.OpenProducerResponse, error) {
	return &tapedeckv1.OpenProducerResponse{Id: 7, Epoch: 1}, nil
}

func (f *fakeNode) GetTopic(context.Context, *tapedeckv1.GetTopicRequest) (*tapedeckv1.GetTopicResponse, error) {
	if f.topic != nil {
		return f.topic()
	}
	return topicOf(f.address), nil
}

// topicOf is a topic of one partition whose leader serves at the address.
func topicOf(leader string) *tapedeckv1.GetTopicResponse {
	return &tapedeckv1.GetTopicResponse{
		Name: "orders", MapVersion: 1, Partitions: []*tapedeckv1.PartitionInfo{{LeaderAddress: leader}},
	}
}

func (f *fakeNode) PublishBatch(_ context.Context, r *tapedeckv1.PublishBatchRequest,
) (*tapedeckv1.PublishBatchResponse, error) {
	v, err := batch.Parse(r.GetBatch())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err.Error())
	}
	f.mu.Lock()
	f.batches = append(f.batches, v)
	publish := f.publish
	f.mu.Unlock()
	if publish != nil {
		return publish(r)
	}
	return &tapedeckv1.PublishBatchResponse{Base: uint64(v.Sequence())}, nil
}

func (f *fakeNode) taken() []batch.View {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.batches)
}

func brokerError(code connect.Code, message string, details ...proto.Message) error {
	err := connect.NewError(code, message)
	for _, d := range details {
		detail, bad := connectproto.NewErrorDetail(d)
		if bad != nil {
			return bad
		}
		err = err.WithDetail(detail)
	}
	return err
}

func newClient(t *testing.T, addresses ...string) *Client {
	t.Helper()
	c, err := New(Config{Addresses: addresses})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// unused is an address where nobody listens.
func unused(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func publishOne(t *testing.T, c *Client) (Result, error) {
	t.Helper()
	p, err := c.NewProducer(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	return p.Publish(t.Context(), &Message{Key: []byte("k"), Payload: []byte("v")})
}

func TestRequestsGoToTheLeader(t *testing.T) {
	any, leader := startFake(t), startFake(t)
	any.topic = func() (*tapedeckv1.GetTopicResponse, error) { return topicOf(leader.address), nil }
	if _, err := publishOne(t, newClient(t, any.address)); err != nil {
		t.Fatal(err)
	}
	if len(any.taken()) != 0 || len(leader.taken()) != 1 {
		t.Errorf("%d batches at the node asked, %d at the leader", len(any.taken()), len(leader.taken()))
	}

	// The leader moved on; its answer says where to.
	next := startFake(t)
	leader.publish = func(*tapedeckv1.PublishBatchRequest) (*tapedeckv1.PublishBatchResponse, error) {
		return nil, brokerError(connect.CodeFailedPrecondition, "ask n3",
			&errdetails.ErrorInfo{Reason: ReasonNotLeader}, &tapedeckv1.NotLeader{Leader: "n3", Address: next.address})
	}
	if _, err := publishOne(t, newClient(t, any.address)); err != nil {
		t.Fatal(err)
	}
	if len(any.taken()) != 0 || len(next.taken()) != 1 {
		t.Errorf("%d batches at the node asked, %d at the new leader", len(any.taken()), len(next.taken()))
	}
	direct, err := New(Config{Addresses: []string{next.address}, NoDirect: true})
	if err != nil {
		t.Fatal(err)
	}
	next.topic = func() (*tapedeckv1.GetTopicResponse, error) { return topicOf(unused(t)), nil }
	if _, err := publishOne(t, direct); err != nil || len(next.taken()) != 2 {
		t.Errorf("with NoDirect: %v, %d batches at the only address", err, len(next.taken()))
	}
}

func TestOtherAddressesAreTried(t *testing.T) {
	good := startFake(t)
	good.topic = func() (*tapedeckv1.GetTopicResponse, error) { return topicOf(unused(t)), nil }
	c := newClient(t, unused(t), unused(t), good.address)
	if r, err := publishOne(t, c); err != nil || r.Offset != 0 {
		t.Fatal(r, err)
	}
	if order := c.nodes.order(sessionRoute("orders", 0)); order[0].address != "http://"+good.address {
		t.Errorf("the next request begins at %s, not at the node that answered", order[0].address)
	}
	var e *Error
	_, err := newClient(t, unused(t)).ListTopics(t.Context())
	if !errors.As(err, &e) || e.Reason != ReasonNotSent || e.Code != connect.CodeUnavailable || !e.Retryable() {
		t.Errorf("nobody there: %+v", err)
	}
	for _, bad := range []string{"ftp://host:1", "http://", "://"} {
		if _, err := New(Config{Addresses: []string{bad}}); err == nil || !strings.Contains(err.Error(), "host:port") {
			t.Errorf("address %q: %v", bad, err)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("a client without an address")
	}
}

func TestErrorsAreRead(t *testing.T) {
	f := startFake(t)
	c := newClient(t, f.address)
	for _, x := range []struct {
		err  error
		want Error
	}{
		{brokerError(connect.CodeResourceExhausted, "slow down", &errdetails.ErrorInfo{Reason: ReasonDiskFull},
			&errdetails.RetryInfo{RetryDelay: durationpb.New(3 * time.Second)}),
			Error{Code: connect.CodeResourceExhausted, Reason: ReasonDiskFull, Message: "slow down",
				RetryAfter: 3 * time.Second}},
		{brokerError(connect.CodeOutOfRange, "gone", &errdetails.ErrorInfo{Reason: ReasonOffsetTooOld,
			Metadata: map[string]string{"start": "7", "end": "9"}}),
			Error{Code: connect.CodeOutOfRange, Reason: ReasonOffsetTooOld, Message: "gone", Start: 7, End: 9}},
		{brokerError(connect.CodeFailedPrecondition, "gap", &errdetails.ErrorInfo{Reason: ReasonSequenceGap,
			Metadata: map[string]string{"expectedSequence": "5"}}),
			Error{Code: connect.CodeFailedPrecondition, Reason: ReasonSequenceGap, Message: "gap", Expected: 5}},
		{brokerError(connect.CodeInvalidArgument, "bad", &errdetails.BadRequest{
			FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "name"}}}),
			Error{Code: connect.CodeInvalidArgument, Message: "bad", Field: "name"}},
	} {
		f.topic = func() (*tapedeckv1.GetTopicResponse, error) { return nil, x.err }
		_, err := c.GetTopic(t.Context(), &tapedeckv1.GetTopicRequest{Topic: "orders"})
		var got *Error
		if !errors.As(err, &got) {
			t.Fatalf("%T %v", err, err)
		}
		plain := *got
		plain.cause = nil
		if plain != x.want {
			t.Errorf("%+v, want %+v", plain, x.want)
		}
	}
}

func TestCallsAreRepeatedAfterAMoment(t *testing.T) {
	f := startFake(t)
	count := 0
	f.topic = func() (*tapedeckv1.GetTopicResponse, error) {
		if count++; count < 3 {
			return nil, brokerError(connect.CodeUnavailable, "no leader", &errdetails.ErrorInfo{Reason: ReasonNoLeader})
		}
		return topicOf(f.address), nil
	}
	if _, err := newClient(t, f.address).GetTopic(t.Context(), &tapedeckv1.GetTopicRequest{Topic: "orders"}); err != nil {
		t.Fatal(err)
	}
	if count != 3 {
		t.Errorf("%d attempts", count)
	}
}

// TestPublishingWaitsWhenTooMuchWaits: the broker holds its answers back.
func TestPublishingWaitsWhenTooMuchWaits(t *testing.T) {
	f := startFake(t)
	hold := make(chan struct{})
	f.publish = func(r *tapedeckv1.PublishBatchRequest) (*tapedeckv1.PublishBatchResponse, error) {
		<-hold
		return &tapedeckv1.PublishBatchResponse{Base: uint64(batch.View(r.GetBatch()).Sequence())}, nil
	}
	p, err := newClient(t, f.address).NewProducer(t.Context(), "orders", WithPendingLimits(1<<20, 3), WithLinger(-1))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var got []uint64
	then := func(r Result, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			t.Error(err)
		}
		got = append(got, r.Offset)
	}
	for i := range 3 {
		if err := p.PublishAsync(t.Context(), &Message{Payload: fmt.Append(nil, i)}, then); err != nil {
			t.Fatal(err)
		}
	}
	full, cancel := context.WithCancel(t.Context())
	cancel()
	var e *Error
	err = p.PublishAsync(full, &Message{}, then)
	if !errors.As(err, &e) || e.Reason != ReasonThrottled || !errors.Is(err, context.Canceled) {
		t.Fatalf("a fourth message: %v", err)
	}
	close(hold)
	if err := p.PublishAsync(t.Context(), &Message{}, then); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	if !slices.Equal(got, []uint64{0, 1, 2, 3}) {
		t.Errorf("offsets %v", got)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Errorf("closing again: %v", err)
	}
}

func TestBatchesArePackedAndUnpacked(t *testing.T) {
	text := []byte(strings.Repeat("the same again, ", 500))
	for _, how := range []Compression{NoCompression, Zstd, S2} {
		f := startFake(t)
		p, err := newClient(t, f.address).NewProducer(t.Context(), "orders", WithCompression(how))
		if err != nil {
			t.Fatal(err)
		}
		m := &Message{Payload: text, Attributes: map[string]string{"b": "2", "a": "1"}}
		if _, err := p.Publish(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		_ = p.Close(t.Context())
		v := f.taken()[0]
		if packed := len(v) < len(text)/2; packed != (how != NoCompression) {
			t.Errorf("compression %d: %d bytes of %d", how, len(v), len(text))
		}
		messages, err := v.Messages(unpack)
		if err != nil || string(messages[0].Payload) != string(text) || messages[0].Attributes[0].Name != "a" {
			t.Errorf("compression %d: %v", how, err)
		}
		if how == NoCompression {
			continue
		}
		if _, err := unpack(v.Compression(), v.Body(), int(v.RawSize())-1); err == nil {
			t.Errorf("compression %d: a wrong size is not noticed", how)
		}
		if _, err := unpack(v.Compression(), v.Body(), maxRawBytes+1); err == nil {
			t.Errorf("compression %d: an absurd size is tried", how)
		}
		if _, err := unpack(v.Compression(), v.Body()[:len(v.Body())/2], int(v.RawSize())); err == nil {
			t.Errorf("compression %d: half a batch is unpacked", how)
		}
	}
	if _, err := newClient(t, "127.0.0.1:1").NewProducer(t.Context(), "orders", WithCompression(9)); err == nil {
		t.Error("an unknown compression is taken")
	}
}

// TestAnOpenAttemptIsToldAsSuch: without sequences, a request without an answer
// is not sent again.
func TestAnOpenAttemptIsToldAsSuch(t *testing.T) {
	f := startFake(t)
	f.publish = func(*tapedeckv1.PublishBatchRequest) (*tapedeckv1.PublishBatchResponse, error) {
		return nil, connect.NewError(connect.CodeUnavailable, "the leader went away")
	}
	p, err := newClient(t, f.address).NewProducer(t.Context(), "orders", WithoutIdempotence())
	if err != nil {
		t.Fatal(err)
	}
	var e *Error
	if _, err := p.Publish(t.Context(), &Message{}); !errors.As(err, &e) || e.Reason != ReasonUnknownOutcome || !e.Maybe {
		t.Errorf("%+v", err)
	}
	if n := len(f.taken()); n != 1 {
		t.Errorf("sent %d times", n)
	}
	_ = p.Close(t.Context())
}

func sessionRoute(topic string, partition model.Partition) session.Route {
	return session.Route{Topic: topic, Partition: partition, HasPartition: true}
}
