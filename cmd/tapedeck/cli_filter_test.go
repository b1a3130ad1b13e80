package main

import (
	"strings"
	"testing"
)

// A filter over packed and plain batches, by the command line and by JSON, as
// docs/filters.md shows it.
func TestFilters(t *testing.T) {
	s := shell{t, startTestCluster(t, 1, "").nodes[0].URL()}
	s.ok("", "topic create orders --replicas 1")
	s.fails("subscription create orders/eu --filter attributes.region", "filter", "at character 18", "expected ==")
	s.ok("", `subscription create orders/eu --filter attributes.region=="eu"`)
	s.ok("a1\na2\n", "pub orders --attribute region=us --compression zstd")
	s.ok("b1\n", "pub orders --attribute region=eu --compression zstd")
	s.ok("c1\n", "pub orders")
	s.ok("d1\nd2\n", "pub orders --attribute region=eu --compression s2")
	s.ok("e1\n", "pub orders --attribute region=us")

	var pulled struct {
		Generation string
		Messages   []struct{ Offset string }
	}
	var got []string
	for len(got) < 3 {
		s.post("Pull", `{"subscription":"orders/eu","member":"m","wait":"5s"}`, &pulled)
		got = nil
		for _, m := range pulled.Messages {
			got = append(got, m.Offset)
		}
	}
	if strings.Join(got, " ") != "2 4 5" {
		t.Fatalf("delivered %v, want 2 4 5", got)
	}
	var acked struct{ Results []struct{ Cursor string } }
	s.post("Ack", `{"subscription":"orders/eu","member":"m","generation":"`+pulled.Generation+
		`","upTo":[{"partition":0,"nextOffset":"6"}]}`, &acked)
	s.post("Pull", `{"subscription":"orders/eu","member":"m","wait":"0.1s"}`, &pulled)
	s.ok("", "subscription describe orders/eu", `attributes.region=="eu"`)
	s.ok("", "subscription describe orders/eu --json", `"cursor":"7"`, `"lag":"0"`)
	s.fails("subscription update orders/eu --filter (true", "at character 6")
	s.ok("", "subscription list", "ATTEMPTS", `attributes.region=="eu"`)
	status, res := caller{t, s.server}.try("/tapedeck.v1.AdminService/UpdateSubscription",
		`{"subscription":"orders/eu","filter":""}`)
	if status != 400 || !strings.Contains(show(res), "true takes everything") {
		t.Errorf("an empty filter: %d %s", status, show(res))
	}
	s.ok("", "subscription update orders/eu --filter true", "changed")
}
