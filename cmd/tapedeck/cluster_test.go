package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/grpcreflect/v2"
	"google.golang.org/protobuf/types/known/durationpb"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/api/tapedeck/v1/tapedeckv1connect"
	"github.com/tapedeck/tapedeck/disk/journal"
)

// startTestCluster starts a cluster on free ports; it is stopped with the test.
func startTestCluster(t *testing.T, nodes int, dir string) *cluster {
	t.Helper()
	addresses, err := consecutive("127.0.0.1:0", nodes)
	if err != nil {
		t.Fatal(err)
	}
	return startTestClusterAt(t, addresses, dir)
}

func startTestClusterAt(t *testing.T, addresses []string, dir string) *cluster {
	t.Helper()
	c, err := startCluster(addresses, clusterData{dir, journal.Own}, []string{"localhost"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.stop(10 * time.Second); err != nil {
			t.Error(err)
		}
	})
	if err := c.waitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// object is JSON as a person with curl sees it.
type object = map[string]any

// caller posts JSON to a node.
type caller struct {
	t    *testing.T
	base string
}

// call posts and expects 200.
func (c caller) call(path, body string) object {
	c.t.Helper()
	status, res := c.try(path, body)
	if status != http.StatusOK {
		c.t.Fatalf("%s %s: %d %v", path, body, status, res)
	}
	return res
}

func (c caller) try(path, body string) (int, object) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.base+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	var out object
	if err := json.Unmarshal(raw, &out); err != nil {
		c.t.Fatalf("%s: %d %s: %v", path, res.StatusCode, raw, err)
	}
	return res.StatusCode, out
}

// show renders a value with sorted names, for comparison.
func show(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(b.String())
}

// pullAll pulls until count messages have come, and returns them with the last answer.
func (c caller) pullAll(path, body string, count int) (messages []object, last object) {
	c.t.Helper()
	for len(messages) < count {
		last = c.call(path, body)
		for _, m := range last["messages"].([]any) {
			messages = append(messages, m.(object))
		}
	}
	return messages, last
}

// ackBody acks all messages given.
func ackBody(pulled object, messages []object) string {
	next := map[float64]uint64{}
	for _, m := range messages {
		var offset uint64
		if _, err := fmt.Sscan(m["offset"].(string), &offset); err != nil {
			return err.Error()
		}
		next[m["partition"].(float64)] = max(next[m["partition"].(float64)], offset+1)
	}
	var upTo []string
	for p, o := range next {
		upTo = append(upTo, fmt.Sprintf(`{"partition":%v,"nextOffset":"%d"}`, p, o))
	}
	slices.Sort(upTo)
	return fmt.Sprintf(`{"subscription":"orders/billing","member":%q,"generation":%q,"upTo":[%s]}`,
		pulled["member"], pulled["generation"], strings.Join(upTo, ","))
}

// TestTheWholeWayWithJSONAlone is what a person does with curl: by the names of
// the services, and by the plain paths.
func TestTheWholeWayWithJSONAlone(t *testing.T) {
	for name, path := range map[string]map[string]string{
		"services": {
			"topic": "/tapedeck.v1.AdminService/CreateTopic", "subscription": "/tapedeck.v1.AdminService/CreateSubscription",
			"publish": "/tapedeck.v1.PubSubService/Publish", "pull": "/tapedeck.v1.PubSubService/Pull",
			"ack": "/tapedeck.v1.PubSubService/Ack", "seek": "/tapedeck.v1.PubSubService/Seek",
		},
		"paths": {
			"topic": "/v1/topics", "subscription": "/v1/subscriptions", "publish": "/v1/topics/orders/publish",
			"pull": "/v1/subscriptions/orders/billing/pull", "ack": "/v1/subscriptions/orders/billing/ack",
			"seek": "/v1/subscriptions/orders/billing/seek",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := startTestCluster(t, 3, "")
			wholeWay(t, caller{t, c.nodes[0].URL()}, path)
		})
	}
}

func wholeWay(t *testing.T, c caller, path map[string]string) {
	c.call(path["topic"], `{"name":"orders","partitions":2}`)
	c.call(path["subscription"], `{"topic":"orders","name":"billing"}`)

	// One key, so one partition: offsets from 0, visible.
	published := c.call(path["publish"], `{"topic":"orders","messages":[
		{"key":"YW5u","payload":"b25l"},{"key":"YW5u","payload":"dHdv"},{"key":"YW5u","payload":"dGhyZWU="}]}`)
	results := published["results"].([]any)
	partition := results[0].(object)["partition"]
	for i, r := range results {
		want := object{"partition": partition, "offset": fmt.Sprint(i), "duplicate": false}
		if show(r) != show(want) {
			t.Fatalf("result %d is %s, want %s", i, show(r), show(want))
		}
	}

	pull := `{"subscription":"orders/billing","member":"m1","wait":"5s"}`
	messages, pulled := c.pullAll(path["pull"], pull, 3)
	for i, payload := range []string{"b25l", "dHdv", "dGhyZWU="} {
		m := messages[i]
		if m["appendTime"] == nil {
			t.Errorf("message %d has no appendTime", i)
		}
		if _, there := m["eventTime"]; there {
			t.Errorf("message %d has an eventTime that nobody gave", i)
		}
		want := object{"partition": partition, "offset": fmt.Sprint(i), "delivery": "0", "key": "YW5u",
			"payload": payload, "attributes": object{}, "appendTime": m["appendTime"], "attempt": 1}
		if show(m) != show(want) {
			t.Errorf("message %d is %s, want %s", i, show(m), show(want))
		}
	}
	acked := c.call(path["ack"], ackBody(pulled, messages))
	if want := []any{object{"partition": partition, "cursor": "3"}}; show(acked["results"]) != show(want) {
		t.Errorf("the ack's results are %s, want %s", show(acked["results"]), show(want))
	}
	lagIs(c, partition, "0")

	seek := fmt.Sprintf(`{"subscription":"orders/billing","time":%q}`, messages[0]["appendTime"])
	if res := c.call(path["seek"], seek); len(res["cursors"].([]any)) != 2 {
		t.Errorf("the seek says %s", show(res))
	}
	lagIs(c, partition, "3")
	again, _ := c.pullAll(path["pull"], pull, 3)
	for i := range messages {
		if show(again[i]) != show(messages[i]) {
			t.Errorf("message %d comes again as %s, not %s", i, show(again[i]), show(messages[i]))
		}
	}
}

// lagIs checks one partition's lag, and that the other's is 0.
func lagIs(c caller, partition any, want string) {
	c.t.Helper()
	s := c.call("/tapedeck.v1.AdminService/GetSubscription", `{"subscription":"orders/billing"}`)
	for _, p := range s["partitions"].([]any) {
		p, expected := p.(object), "0"
		if p["partition"] == partition {
			expected = want
		}
		if p["lag"] != expected {
			c.t.Errorf("partition %v: lag is %v, want %s in %s", p["partition"], p["lag"], expected, show(p))
		}
	}
}

func TestErrorsOfARealClusterSayWhatToDo(t *testing.T) {
	c := caller{t, startTestCluster(t, 3, "").nodes[1].URL()}
	c.call("/v1/topics", `{"name":"orders"}`)
	c.call("/v1/subscriptions", `{"topic":"orders","name":"billing"}`)
	c.call("/v1/topics/orders/publish", `{"messages":[{"key":"YQ==","payload":"YQ=="}]}`)
	for _, e := range []struct {
		path, body string
		status     int
		has        []string
	}{
		{"/v1/topics/ordrs/publish", `{"messages":[{}]}`, 404, []string{"not_found", "orders"}},
		{"/v1/subscriptions/orders/biling/pull", `{}`, 404, []string{"not_found", "orders/billing"}},
		{"/v1/topics", `{"name":"orders","partitions":5}`, 409, []string{"already_exists"}},
		{"/v1/topics", `{"name":"Orders"}`, 400, []string{"invalid_argument", "google.rpc.BadRequest", "name"}},
		{"/v1/topics", `{"name":"wide","replicas":5}`, 400, []string{"failed_precondition"}},
		{"/v1/topics/orders/fetch", `{"offset":"7"}`, 400, []string{"out_of_range", "OFFSET_TOO_NEW", `"end":"1"`}},
		{"/v1/subscriptions/orders/billing/seek", `{}`, 400, []string{"invalid_argument", "earliest"}},
		{"/v1/subscriptions/orders/billing/ack", `{"member":"x","generation":"1","upTo":[{"partition":0,"nextOffset":"1"}]}`,
			400, []string{"failed_precondition", "FENCED"}},
		{"/v1/topics/orders/publish", `{"messages":[{}],"producer":{"id":"9","epoch":"1","sequence":"4"},"partition":0}`,
			400, []string{"failed_precondition", "SEQUENCE_", "expectedSequence"}},
		{"/tapedeck.v1.AdminService/DrainNode", `{"node":"n1"}`, 400, []string{"failed_precondition", "add a node first"}},
		{"/tapedeck.v1.AdminService/CreateSnapshot", `{"name":"s"}`, 400, []string{"invalid_argument", "topic/name"}},
		{"/v1/subscriptions", `{"topic":"orders","name":"brief","expireWhenUnusedIn":"60s"}`, 501,
			[]string{"unimplemented", "this version"}},
	} {
		status, res := c.try(e.path, e.body)
		if status != e.status {
			t.Errorf("%s %s: status %d, want %d: %s", e.path, e.body, status, e.status, show(res))
		}
		for _, want := range e.has {
			if !strings.Contains(show(res), want) {
				t.Errorf("%s %s: no %s in %s", e.path, e.body, want, show(res))
			}
		}
	}
}

func TestGRPCWorksAndIsDescribed(t *testing.T) {
	n := startTestCluster(t, 3, "").nodes[2]
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	h2c := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	client := connect.NewClient(connecthttp.NewTransport(h2c, n.URL(), connecthttp.WithGRPC()))
	s := grpcreflect.NewClient(client).NewStream(t.Context())
	names, err := s.ListServices()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(fmt.Sprint(names), tapedeckv1connect.PubSubServiceName) {
		t.Errorf("reflection lists %v", names)
	}
	_ = s.Close()
	admin, pubsub := tapedeckv1connect.NewAdminServiceClient(client), tapedeckv1connect.NewPubSubServiceClient(client)
	if _, err := admin.CreateTopic(t.Context(), &tapedeckv1.CreateTopicRequest{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateSubscription(t.Context(), &tapedeckv1.CreateSubscriptionRequest{
		Topic: "t", Name: "s",
	}); err != nil {
		t.Fatal(err)
	}
	// A stream that is open before anything is there.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := pubsub.StreamPull(ctx, &tapedeckv1.StreamPullRequest{Subscription: "t/s"})
	if err != nil {
		t.Fatal(err)
	}
	const count = 20
	for i := range count {
		if _, err := pubsub.Publish(t.Context(), &tapedeckv1.PublishRequest{
			Topic: "t", Messages: []*tapedeckv1.Message{{Payload: fmt.Append(nil, i)}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for seen := 0; seen < count; {
		res, err := stream.Receive()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range res.GetMessages() {
			if string(m.GetPayload()) != fmt.Sprint(seen) {
				t.Fatalf("message %d of the stream is %q", seen, m.GetPayload())
			}
			seen++
		}
	}
	// A long-poll of a whole second with nothing to come ends empty, not in an error.
	res, err := pubsub.Fetch(t.Context(), &tapedeckv1.FetchRequest{
		Topic: "t", Offset: count, Wait: durationpb.New(100 * time.Millisecond),
	})
	if err != nil || len(res.GetMessages()) != 0 || res.GetHighWatermark() != count {
		t.Fatalf("fetch at the end: %v %v", res, err)
	}
}

// TestAStreamStopsAtItsLimitUntilAcked reads with at most limit messages unacked.
func TestAStreamStopsAtItsLimitUntilAcked(t *testing.T) {
	n := startTestCluster(t, 1, "").nodes[0]
	client := connect.NewClient(connecthttp.NewTransport(http.DefaultClient, n.URL()))
	admin, pubsub := tapedeckv1connect.NewAdminServiceClient(client), tapedeckv1connect.NewPubSubServiceClient(client)
	const count, limit = 50, 8
	if _, err := admin.CreateTopic(t.Context(), &tapedeckv1.CreateTopicRequest{Name: "t", Replicas: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateSubscription(t.Context(), &tapedeckv1.CreateSubscriptionRequest{
		Topic: "t", Name: "s",
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := pubsub.Publish(t.Context(), &tapedeckv1.PublishRequest{
		Topic: "t", Messages: slices.Repeat([]*tapedeckv1.Message{{Key: []byte("k")}}, count),
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := pubsub.StreamPull(ctx, &tapedeckv1.StreamPullRequest{
		Subscription: "t/s", Member: "m", MaxInFlight: limit, RawBatches: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for seen, acked := uint64(0), uint64(0); seen < count; {
		res, err := stream.Receive()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range res.GetRanges() {
			if r.GetFrom() != seen {
				t.Fatalf("a range begins at %d, not %d", r.GetFrom(), seen)
			}
			seen = r.GetTo()
		}
		if seen-acked > limit {
			t.Fatalf("%d messages are sent and not acked; the limit is %d", seen-acked, limit)
		}
		if seen-acked < limit && seen < count {
			continue // the stream may send more
		}
		if _, err := pubsub.Ack(t.Context(), &tapedeckv1.AckRequest{
			Subscription: "t/s", Member: "m", Generation: res.GetGeneration(),
			UpTo: []*tapedeckv1.AckUpTo{{NextOffset: seen}},
		}); err != nil {
			t.Fatal(err)
		}
		acked = seen
	}
}

// TestDataAndCursorsSurvive stops a cluster both ways and starts it again on the
// same folders and ports.
func TestDataAndCursorsSurvive(t *testing.T) {
	dir := t.TempDir()
	cl := startTestCluster(t, 3, dir)
	addresses := make([]string, len(cl.nodes))
	for i, n := range cl.nodes {
		addresses[i] = strings.TrimPrefix(n.URL(), "http://")
	}
	c := caller{t, cl.nodes[0].URL()}
	c.call("/v1/topics", `{"name":"orders"}`)
	c.call("/v1/subscriptions", `{"topic":"orders","name":"billing"}`)
	publish := func(payload string) {
		t.Helper()
		c.call("/v1/topics/orders/publish", fmt.Sprintf(`{"messages":[{"key":"YQ==","payload":%q}]}`, payload))
	}
	payloads := func() (out []string) {
		t.Helper()
		res := c.call("/v1/topics/orders/fetch", `{}`)
		for _, m := range res["messages"].([]any) {
			out = append(out, m.(object)["payload"].(string))
		}
		return out
	}
	want := []string{"YTAw", "YTAx"}
	publish(want[0])
	publish(want[1])
	c.call("/v1/subscriptions/orders/billing/seek", `{"offsets":{"offsets":[{"partition":0,"offset":"1"}]}}`)
	for round, kill := range []bool{true, false, true} {
		if kill {
			for _, n := range cl.nodes {
				cl.kill(n)
			}
		}
		if err := cl.stop(10 * time.Second); err != nil {
			t.Fatal(err)
		}
		cl = startTestClusterAt(t, addresses, dir)
		if got := payloads(); !slices.Equal(got, want) {
			t.Fatalf("round %d, kill %v: %v is there, want %v", round, kill, got, want)
		}
		lag := fmt.Sprint(len(want) - 1)
		s := c.call("/tapedeck.v1.AdminService/GetSubscription", `{"subscription":"orders/billing"}`)
		if p := s["partitions"].([]any)[0].(object); p["cursor"] != "1" || p["lag"] != lag {
			t.Fatalf("round %d, kill %v: %s, want cursor 1 and lag %s", round, kill, show(p), lag)
		}
		want = append(want, fmt.Sprintf("YTB%c", 'z'-round*4))
		publish(want[len(want)-1])
	}
}
