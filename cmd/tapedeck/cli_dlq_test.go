package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// post calls the API as a person with curl does.
func (s shell) post(method, body string, into any) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost,
		s.server+"/tapedeck.v1.PubSubService/"+method, bytes.NewReader([]byte(body)))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s: %s %v", method, resp.Status, text, err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		s.t.Fatalf("%s: %s: %v", method, text, err)
	}
}

func TestDeadLettersAndBack(t *testing.T) {
	s := shell{t, startTestCluster(t, 3, "").nodes[0].URL()}
	s.ok("", "topic create orders")
	s.ok("", "topic create dead --partitions 2")
	s.fails("subscription create orders/mail --max-attempts 2", "dead_letter_topic")
	s.ok("", "subscription create orders/mail --max-attempts 2 --dead-letter-topic dead --min-backoff 1ms")
	s.ok("", "subscription get orders/mail", "max attempts       2", "dead-letter topic  dead")
	s.fails("topic create orders --partitions 3", "partitions is 1, not 3", "tapedeck topic update NAME")
	s.fails("topic delete orders", "orders/mail", "--force")
	s.fails("topic create jöbs", `"jöbs" has 'ö' at position 1`)
	s.fails("pub orders --partition 9", `--partition: is 9; topic "orders" has 1, counted from 0`)
	s.ok("ann:bad\nbob:good\n", "pub orders --key-separator :")

	var pulled struct {
		Generation string
		Messages   []struct {
			Offset  string
			Attempt int
		}
	}
	for attempt := 1; attempt <= 2; attempt++ {
		for pulled.Messages = nil; len(pulled.Messages) == 0; {
			s.post("Pull", `{"subscription":"orders/mail","member":"m","maxMessages":1,"wait":"5s"}`, &pulled)
		}
		if m := pulled.Messages[0]; m.Offset != "0" || m.Attempt != attempt {
			t.Fatalf("attempt %d: %+v", attempt, pulled)
		}
		s.post("Nack", `{"subscription":"orders/mail","member":"m","generation":"`+pulled.Generation+
			`","offsets":[{"partition":0,"offsets":["0"]}]}`, &struct{}{})
	}
	s.post("LeaveSubscription", `{"subscription":"orders/mail","member":"m"}`, &struct{}{})
	if out := s.ok("", "sub orders/mail --max 1"); !strings.Contains(out, "good") {
		t.Fatalf("the message behind the dead one did not come:\n%s", out)
	}

	list := s.ok("", "dlq list dead", "orders/0@0", "2         no         ann", "not acknowledged in 2 deliveries")
	fields := strings.Fields(strings.Split(list, "\n")[1])
	s.ok("", "dlq show dead "+fields[0]+" "+fields[1], "orders/0@0", "bad")
	s.ok("", "dlq list dead --json", `"tapedeck.dead-letter.attempts"`, `"sentBack":false`)
	s.fails("dlq show dead 0 77", "77")

	s.ok("", "dlq redrive dead", "sent 1 message back")
	s.ok("", "dlq redrive dead", "sent 0 messages back") // it remembers
	s.ok("", "dlq list dead", "2         yes        ann")
	s.ok("", "dlq list dead --json", `"tapedeck.dead-letter.attempts"`, `"sentBack":true`)
	back := s.ok("", "sub orders/mail --max 1 --json", `"bad"`)
	if strings.Contains(back, letterPrefix) {
		t.Fatalf("it still says that it is a dead letter:\n%s", back)
	}
}
