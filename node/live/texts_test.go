package live

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

func TestWhatIsNotServedIsAnsweredWithWhatIs(t *testing.T) {
	h, _ := answering(&call.PublishResult{})
	n := startFake(t, h)
	const asJSON, asForm = "application/json", "application/x-www-form-urlencoded"
	for _, c := range []struct {
		verb, path, kind string
		status           int
		code, says       string
		lists            bool
	}{
		{"GET", "/", "", 404, "not_found", "nothing is served at /", true},
		{"GET", "/v1/topcs", "", 404, "not_found", "/v1/topcs", true},
		{"POST", "/v1/topics/orders/publsh", asJSON, 404, "not_found", "/v1/topics/orders/publsh", true},
		{"POST", "/tapedeck.v1.PubSub/Publish", asJSON, 404, "not_found", "/tapedeck.v1.PubSub/Publish", true},
		{"GET", "/tapedeck.v1.PubSubService/Nothing", "", 404, "not_found", "Nothing", true},
		{"POST", "/tapedeck.v1.PubSubService/Nothing", asJSON, 501, "unimplemented", "Nothing", false},
		{"GET", "/v1/topics/orders/publish", "", 405, "unimplemented", "GET is not served at /v1/topics/orders/publish; " +
			"use POST", false},
		{"POST", "/healthz", asJSON, 405, "unimplemented", "use GET", false},
		{"PUT", "/v1/topics/orders", asJSON, 405, "unimplemented", "use GET or PATCH or DELETE", false},
		{"POST", "/v1/topics/orders/publish", asForm, 415, "invalid_argument", "content-type: application/json", false},
		{"POST", "/tapedeck.v1.PubSubService/Publish", asForm, 415, "invalid_argument", "content-type", false},
		{"GET", "/tapedeck.v1.PubSubService/Publish", "", 415, "invalid_argument", "send a POST", false},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.verb, n.URL()+c.path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", c.kind)
		status, body := do(t, req)
		var got served
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Errorf("%s %s: %d, no JSON: %s", c.verb, c.path, status, body)
			continue
		}
		if status != c.status || got.Code != c.code || !strings.Contains(got.Message, c.says) {
			t.Errorf("%s %s: %d %s %q; want %d %s %q", c.verb, c.path, status, got.Code, got.Message, c.status, c.code, c.says)
		}
		listed := slices.Contains(got.Paths, "POST /v1/subscriptions/{topic}/{name}/pull") &&
			slices.Contains(got.Paths, "GET /metrics") &&
			slices.Contains(got.Procedures, "/tapedeck.v1.AdminService/CreateTopic")
		if listed != c.lists {
			t.Errorf("%s %s: listed is %v, %v", c.verb, c.path, got.Paths, got.Procedures)
		}
	}
}

func TestJSONThatIsNotUnderstoodComesWithAHint(t *testing.T) {
	h, _ := answering(&call.PullResult{})
	n := startFake(t, h)
	for _, c := range []struct{ plain, procedure, body, hint string }{
		{"/v1/subscriptions/o/m/pull", "PubSubService/Pull", `{"member":"a","wait":"10h"}`, `such as "1.5s"`},
		{"/v1/subscriptions/o/m/pull", "PubSubService/Pull", `{"member":"a","wait":10}`, `"1.5s"`},
		{"/v1/subscriptions/o/m/seek", "PubSubService/Seek", `{"time":"yesterday"}`, `"2026-01-31T12:00:00Z"`},
		{"/v1/topics/o/publish", "PubSubService/Publish", `{"messages":[{"payload":"not base64!"}]}`, "base64"},
		{"/v1/topics/o/publish", "PubSubService/Publish", `{"mesages":[]}`,
			`unknown field "mesages" at line 1, character 2; did you mean "messages"?`},
		{"/v1/topics/o/publish", "PubSubService/Publish", `{"xyz":1}`,
			"PublishRequest has topic, messages, partition, producer"},
		{"/v1/topics/o/publish", "PubSubService/Publish", `{"messages":[{"atributes":{}}]}`, `did you mean "attributes"?`},
		{"/v1/topics/o/publish", "PubSubService/Publish", `{"messages":[}`, "no JSON at line 1, character 14"},
		{"/v1/subscriptions", "AdminService/CreateSubscription", `{"topic":"o","name":"n","mode":"shared"}`,
			`mode is "shared" at line 1, character 32; use MODE_ORDERED or MODE_SHARED`},
		{"/v1/subscriptions/o/m/ack", "PubSubService/Ack", `{"generation":"x"}`, "generation"},
	} {
		for _, path := range []string{c.plain, "/tapedeck.v1." + c.procedure} {
			if status, body := post(t, n.URL()+path, c.body); status != http.StatusBadRequest ||
				!strings.Contains(strings.ReplaceAll(body, `\"`, `"`), c.hint) {
				t.Errorf("%s %s: %d %s; want %q", path, c.body, status, body, c.hint)
			}
		}
	}
}

func TestWhomANodeWaitsFor(t *testing.T) {
	node := func(id model.NodeID, up bool) call.NodeStatus {
		return call.NodeStatus{Node: model.Node{ID: id, Address: string(id) + ":1"}, Reachable: up}
	}
	var replicas []model.Replica
	for _, id := range []model.NodeID{"n1", "n2", "n3"} {
		replicas = append(replicas, model.Replica{Node: id})
	}
	replicas = append(replicas, model.Replica{Node: "n4", Learner: true})
	meta := []call.GroupStatus{{Group: model.Group{Kind: model.GroupMeta, Replicas: replicas}}}
	for _, c := range []struct {
		nodes  []call.NodeStatus
		groups []call.GroupStatus
		want   string
	}{
		{[]call.NodeStatus{node("n1", true), node("n2", false), node("n3", false)}, meta,
			"waiting for n2 (n2:1), n3 (n3:1): start what is down, each with its own --data and the same --peers; " +
				"of 3 voting nodes 2 must be up; now: 1"},
		{[]call.NodeStatus{node("n1", true), node("n2", true), node("n3", false), node("n4", false)}, meta,
			"waiting for n3 (n3:1), n4 (n4:1): start what is down, each with its own --data and the same --peers; " +
				"of 3 voting nodes 2 must be up; now: 2"},
		{[]call.NodeStatus{node("n1", true), node("n2", false)}, nil,
			"waiting for n2 (n2:1): start what is down, each with its own --data and the same --peers; a cluster begins " +
				"when all of its nodes have answered once, and one that has begun takes this node in when most of them answer"},
		{[]call.NodeStatus{node("n1", true), node("n2", true), node("n3", true)}, meta,
			"waiting for a leader: all nodes answer; of 3 voting nodes 2 must be up; now: 3"},
	} {
		if got := waitingFor(&call.GetClusterResult{Self: "n1", Nodes: c.nodes, Groups: c.groups}); got != c.want {
			t.Errorf("%q\nwant %q", got, c.want)
		}
	}
}
