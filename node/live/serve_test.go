package live

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/grpcreflect/v2"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/types/known/durationpb"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/api/tapedeck/v1/tapedeckv1connect"
	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// answering gives one result to every request and remembers the last call.
func answering(result call.ClientResult) (*fakeHost, *call.Client) {
	last := new(call.Client)
	return &fakeHost{answer: func(r core.Request) (call.ClientResult, *model.Error) {
		*last = r.Call
		return result, nil
	}}, last
}

func TestJSONShowsZerosAndLeavesAbsentMessagesOut(t *testing.T) {
	h, last := answering(&call.PublishResult{Results: []call.MessageResult{{}}})
	n := startFake(t, h)
	url := n.URL() + "/tapedeck.v1.PubSubService/Publish"
	status, body := post(t, url, `{"topic":"orders","messages":[{"key":"a2V5","payload":"dg==",
		"attributes":{"b":"2","a":"1"},"eventTime":"2026-01-02T03:04:05Z"}]}`)
	if want := `{"results":[{"partition":0,"offset":"0","duplicate":false}]}`; status != http.StatusOK || body != want {
		t.Fatalf("%d %s, want %s", status, body, want)
	}
	want := &call.Publish{Topic: "orders", Messages: []batch.Message{{
		Key: []byte("key"), Payload: []byte("v"),
		Attributes: []batch.Attribute{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}},
		EventTime:  model.Wall(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()),
	}}}
	if !reflect.DeepEqual(*last, call.Client(want)) {
		t.Fatalf("the shard was asked %+v, want %+v", *last, want)
	}
}

func TestBothFieldSpellingsAreTaken(t *testing.T) {
	h, last := answering(&call.FetchResult{})
	n := startFake(t, h)
	for _, name := range []string{"maxMessages", "max_messages"} {
		*last = nil
		status, body := post(t, n.URL()+"/tapedeck.v1.PubSubService/Fetch", fmt.Sprintf(`{"topic":"t",%q:7}`, name))
		c, ok := (*last).(*call.Fetch)
		if !ok || c.MaxMessages != 7 {
			t.Fatalf("%s: %d %s, asked %+v", name, status, body, *last)
		}
	}
}

func TestPlainPathsReachTheSameCalls(t *testing.T) {
	results := map[string]call.ClientResult{
		"POST /v1/topics/orders/publish":              &call.PublishResult{},
		"POST /v1/topics/orders/fetch":                &call.FetchResult{},
		"POST /v1/topics":                             &call.Done{},
		"GET /v1/topics":                              &call.ListTopicsResult{},
		"GET /v1/topics/orders":                       &call.GetTopicResult{},
		"PATCH /v1/topics/orders":                     &call.Done{},
		"DELETE /v1/topics/orders":                    &call.Done{},
		"POST /v1/subscriptions":                      &call.CreateSubscriptionCallResult{},
		"GET /v1/subscriptions":                       &call.ListSubscriptionsResult{},
		"GET /v1/subscriptions/orders/billing":        &call.GetSubscriptionResult{},
		"POST /v1/subscriptions/orders/billing/pull":  &call.PullResult{},
		"POST /v1/subscriptions/orders/billing/ack":   &call.AckCallResult{},
		"POST /v1/subscriptions/orders/billing/nack":  &call.Empty{},
		"POST /v1/subscriptions/orders/billing/leave": &call.Empty{},
		"POST /v1/producers/p1/open":                  &call.OpenProducerCallResult{},
		"GET /v1/cluster":                             &call.GetClusterResult{},
	}
	var result call.ClientResult
	var asked string
	n := startFake(t, &fakeHost{answer: func(r core.Request) (call.ClientResult, *model.Error) {
		asked = fmt.Sprintf("%T %+v", r.Call, r.Call)
		return result, nil
	}})
	for route, r := range results {
		result, asked = r, ""
		verb, path, _ := strings.Cut(route, " ")
		req, err := http.NewRequestWithContext(t.Context(), verb, n.URL()+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if verb == http.MethodPost {
			// A page of any origin may send these without asking first.
			for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded"} {
				req.Header.Set("Content-Type", kind)
				req.Body = io.NopCloser(strings.NewReader("{}"))
				if status, _ := do(t, req); status != http.StatusUnsupportedMediaType || asked != "" {
					t.Errorf("%s of type %q: %d, asked %q", route, kind, status, asked)
				}
			}
			req.Body = io.NopCloser(strings.NewReader("{}"))
		}
		req.Header.Set("Content-Type", "application/json; charset=utf-8")
		if status, body := do(t, req); status != http.StatusOK {
			t.Errorf("%s: %d %s", route, status, body)
		}
		if strings.Contains(path, "/billing/") && !strings.Contains(asked, "orders/billing") {
			t.Errorf("%s does not name its subscription: %s", route, asked)
		}
	}
}

func TestPlainPathErrorsHaveStatusTextAndDetails(t *testing.T) {
	n := startFake(t, &fakeHost{answer: func(core.Request) (call.ClientResult, *model.Error) {
		return nil, model.Reasoned(model.Unavailable, model.ReasonNoLeader, time.Second, "nobody leads")
	}})
	status, body := post(t, n.URL()+"/v1/topics/orders/publish", "{}")
	wanted := []string{`"code":"unavailable"`, `"message":"nobody leads"`, `google.rpc.RetryInfo`, "NO_LEADER"}
	for _, want := range wanted {
		if status != http.StatusServiceUnavailable || !strings.Contains(body, want) {
			t.Errorf("%d %s, want 503 with %s", status, body, want)
		}
	}
	for _, body := range []string{`{"topic":"other"}`, `{"nonsense":1}`, `{`} {
		if status, answer := post(t, n.URL()+"/v1/topics/orders/publish", body); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
}

func TestRequestsBeyondTheLimitAreRefusedWithItsSize(t *testing.T) {
	h, _ := answering(&call.PublishBatchResult{})
	n := startFake(t, h)
	row := errorRow{code: connect.CodeInvalidArgument, field: "request"}
	for _, size := range []int{model.MaxRequestBytes, 2 * model.MaxRequestBytes} {
		for name, options := range map[string][]connecthttp.Option{"connect": nil, "grpc": {connecthttp.WithGRPC()}} {
			client := tapedeckv1connect.NewPubSubServiceClient(n.dial(options...))
			_, err := client.PublishBatch(t.Context(), &tapedeckv1.PublishBatchRequest{Topic: "t", Batch: make([]byte, size)})
			if err == nil || !strings.Contains(err.Error(), fmt.Sprint(model.MaxRequestBytes)) {
				t.Fatalf("%s, %d bytes: %v", name, size, err)
			}
			var e *connect.Error
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
			row.from = &model.Error{Message: e.Message()}
			row.check(t, err)
		}
	}
	// The largest that is allowed passes, as JSON, too.
	most := base64.StdEncoding.EncodeToString(make([]byte, model.MaxRequestBytes-64))
	status, body := post(t, n.URL()+"/tapedeck.v1.PubSubService/PublishBatch", `{"topic":"t","batch":"`+most+`"}`)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
}

func TestRequestBytesAreBoundedTogether(t *testing.T) {
	h, _ := answering(&call.AckCallResult{})
	n := startFake(t, h)
	client := tapedeckv1connect.NewPubSubServiceClient(n.dial())
	n.taken.Store(maxTakenBytes)
	_, err := client.Ack(t.Context(), &tapedeckv1.AckRequest{Subscription: "t/s"})
	if connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "512 MiB") {
		t.Fatalf("beyond the bound: %v", err)
	}
	n.taken.Store(0)
	if _, err := client.Ack(t.Context(), &tapedeckv1.AckRequest{Subscription: "t/s"}); err != nil {
		t.Fatal(err)
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := n.taken.Load(); left != 0 {
		t.Errorf("%d bytes are still counted after all calls", left)
	}
}

func TestGzipIsTakenButNotSent(t *testing.T) {
	h, _ := answering(&call.PublishResult{Results: make([]call.MessageResult, 1000)})
	n := startFake(t, h)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(`{"topic":"t"}`))
	_ = z.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		n.URL()+"/tapedeck.v1.PubSubService/Publish", &packed)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Content-Encoding", "gzip")
	req.Header.Set("Accept-Encoding", "gzip")
	status, body := do(t, req)
	if status != http.StatusOK || !strings.HasPrefix(body, "{") {
		t.Fatalf("%d %.80q", status, body)
	}
}

// stamped builds a stamped batch of messages with payloads base, base+1, ….
func stamped(base, count int, o batch.Options) batch.View {
	var messages []batch.Message
	for i := range count {
		messages = append(messages, batch.Message{Key: []byte("k"), Payload: fmt.Append(nil, base+i)})
	}
	v := batch.Encode(messages, o)
	v.Stamp(model.Offset(base), model.Wall(time.Second))
	return v
}

func packers() map[string]batch.Options {
	encoder, _ := zstd.NewWriter(nil)
	return map[string]batch.Options{
		"none": {},
		"zstd": {Compression: batch.Zstd, Pack: func(dst, raw []byte) []byte { return encoder.EncodeAll(raw, dst) }},
		"s2":   {Compression: batch.S2, Pack: func(dst, raw []byte) []byte { return append(dst, s2.Encode(nil, raw)...) }},
	}
}

func TestPullShowsOnlyTheRangeOfEachBatch(t *testing.T) {
	for name, o := range packers() {
		t.Run(name, func(t *testing.T) {
			h, _ := answering(&call.PullResult{
				Member: "m", Generation: 3, Skipped: []call.Range{{Partition: 1, From: 2, To: 9}},
				Ranges: []call.PulledRange{{
					Range:   call.Range{Partition: 4, From: 11, To: 14, Attempt: 2},
					Batches: []batch.View{stamped(10, 3, o), stamped(13, 3, o)},
				}},
			})
			n := startFake(t, h)
			client := tapedeckv1connect.NewPubSubServiceClient(n.dial())
			res, err := client.Pull(t.Context(), &tapedeckv1.PullRequest{Subscription: "t/s"})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range res.GetMessages() {
				got = append(got, fmt.Sprintf("%d %d %s %d", m.GetPartition(), m.GetOffset(), m.GetPayload(), m.GetAttempt()))
			}
			if want := []string{"4 11 11 2", "4 12 12 1", "4 13 13 1"}; !reflect.DeepEqual(got, want) {
				t.Errorf("messages %v, want %v", got, want)
			}
			raw, err := client.Pull(t.Context(), &tapedeckv1.PullRequest{Subscription: "t/s", RawBatches: true})
			if err != nil {
				t.Fatal(err)
			}
			r := raw.GetRanges()[0]
			views, err := batch.Split(r.GetRun())
			if err != nil || len(views) != 2 || r.GetFrom() != 11 || r.GetTo() != 14 || len(raw.GetMessages()) != 0 {
				t.Errorf("ranges %v, %d batches, %v", raw.GetRanges(), len(views), err)
			}
			if s := raw.GetSkipped(); len(s) != 1 || s[0].GetFrom() != 2 || s[0].GetTo() != 9 {
				t.Errorf("skipped %v", s)
			}
		})
	}
}

func TestDeadlinesReachTheShard(t *testing.T) {
	deadlines := make(chan time.Duration, 1)
	h := &fakeHost{}
	h.answer = func(r core.Request) (call.ClientResult, *model.Error) {
		deadlines <- r.Deadline.Sub(h.env.Now().Mono)
		return &call.FetchResult{}, nil
	}
	n := startFake(t, h)
	client := tapedeckv1connect.NewPubSubServiceClient(n.dial())
	for _, c := range []struct{ deadline, wait, atLeast, atMost time.Duration }{
		{0, 0, 20 * time.Second, defaultDeadline},
		{0, time.Minute, 80 * time.Second, defaultDeadline + time.Minute},
		{10 * time.Minute, 0, 9 * time.Minute, 10 * time.Minute},
	} {
		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if c.deadline > 0 {
			ctx, cancel = context.WithTimeout(ctx, c.deadline)
		}
		if _, err := client.Fetch(ctx, &tapedeckv1.FetchRequest{Wait: durationpb.New(c.wait)}); err != nil {
			t.Fatal(err)
		}
		cancel()
		if got := <-deadlines; got < c.atLeast || got > c.atMost {
			t.Errorf("deadline %v, wait %v: the shard has %v", c.deadline, c.wait, got)
		}
	}
}

func TestAWaitEndsBeforeItsDeadline(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if got := boundWait(ctx, time.Hour); got > 9*time.Second || got < 8*time.Second {
		t.Errorf("wait within 10 s is %v", got)
	}
	if got := boundWait(t.Context(), time.Hour); got != maxWait {
		t.Errorf("an hour's wait is %v", got)
	}
}

func TestACallerThatLeavesCancelsItsRequest(t *testing.T) {
	h := &fakeHost{events: make(chan core.Event, 100)}
	asked := make(chan uint64, 1)
	h.answer = func(r core.Request) (call.ClientResult, *model.Error) {
		asked <- r.ID
		return nil, nil
	}
	n := startFake(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := tapedeckv1connect.NewPubSubServiceClient(n.dial()).Pull(ctx, &tapedeckv1.PullRequest{})
		done <- err
	}()
	id := <-asked
	cancel()
	for ev := range h.events {
		if c, ok := ev.(core.Cancel); ok {
			if c.ID != id {
				t.Errorf("cancelled %d, not %d", c.ID, id)
			}
			break
		}
	}
	if err := <-done; connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("the caller got %v", err)
	}
}

func TestStopEndsStreamsAndLongPollsWithARetryHint(t *testing.T) {
	asked := make(chan string, 10)
	n := startFake(t, &fakeHost{answer: func(r core.Request) (call.ClientResult, *model.Error) {
		c := r.Call.(*call.Pull)
		if c.PullSequence == 1 {
			return &call.PullResult{Member: "m"}, nil
		}
		asked <- c.Subscription
		return nil, nil
	}})
	ended := make(chan error, 2)
	go func() {
		_, err := tapedeckv1connect.NewPubSubServiceClient(n.dial()).Pull(t.Context(),
			&tapedeckv1.PullRequest{Subscription: "t/s", Wait: durationpb.New(time.Minute)})
		ended <- err
	}()
	go func() {
		s, err := tapedeckv1connect.NewPubSubServiceClient(n.dial()).StreamPull(t.Context(),
			&tapedeckv1.StreamPullRequest{Subscription: "t/s"})
		for err == nil {
			_, err = s.Receive()
		}
		ended <- err
	}()
	<-asked
	<-asked
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		row := errorRow{from: stopping(), code: connect.CodeUnavailable, retry: stopRetry}
		row.check(t, <-ended)
	}
}

func TestReflectionListsTheServices(t *testing.T) {
	n := startFake(t, &fakeHost{})
	s := grpcreflect.NewClient(n.dial(connecthttp.WithGRPC())).NewStream(t.Context())
	names, err := s.ListServices()
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(names)
	for _, want := range []string{"tapedeck.v1.PubSubService", "tapedeck.v1.AdminService", "grpc.health.v1.Health"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
		if _, err := s.FileContainingSymbol("tapedeck.v1.PullRequest"); err != nil {
			t.Error(err)
		}
	}
	// A stop does not wait for the open stream.
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestHealthAndMetrics(t *testing.T) {
	h, _ := answering(&call.ListTopicsResult{})
	n := startFake(t, h)
	get := func(path string) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.URL()+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		_, body := do(t, req)
		return body
	}
	if status, body := post(t, n.URL()+"/grpc.health.v1.Health/Check", "{}"); !strings.Contains(body, "SERVING") {
		t.Errorf("health: %d %s", status, body)
	}
	if body := get("/healthz"); body != "ok\n" {
		t.Errorf("healthz: %s", body)
	}
	get("/v1/topics")
	metrics := get("/metrics")
	for _, want := range []string{
		`tapedeck_requests_total{code="ok",node="n1",procedure="/tapedeck.v1.AdminService/ListTopics"} 1`,
		"tapedeck_request_seconds_bucket", "tapedeck_shard_inbox_requests", "tapedeck_journal_sync_seconds_count",
		"tapedeck_journal_bytes_total", `tapedeck_peer_queue_bytes{node="n1",peer="n2"}`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

func TestOnlyAllowedOriginsMayCall(t *testing.T) {
	n := startFake(t, &fakeHost{})
	for origin, want := range map[string]bool{
		"http://localhost:5173": true, "http://127.0.0.1:1": true, "https://console.example": true,
		"https://localhost.evil.example": false, "https://evil.example": false,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodOptions,
			n.URL()+"/tapedeck.v1.PubSubService/Publish", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", origin)
		req.Header.Set("Access-Control-Request-Method", "POST")
		req.Header.Set("Access-Control-Request-Headers", "connect-protocol-version,content-type")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if got := res.Header.Get("Access-Control-Allow-Origin") == origin; got != want {
			t.Errorf("%s: allowed %v, want %v", origin, got, want)
		}
	}
}
