package main

import "testing"

func TestSnapshotsOfCursors(t *testing.T) {
	s := shell{t, startTestCluster(t, 1, "").nodes[0].URL()}
	s.ok("", "topic create orders --replicas 1")
	s.ok("", "subscription create orders/mail")
	s.ok("a\nb\nc\n", "pub orders")
	s.ok("", "sub orders/mail --max 1", "a")
	s.ok("", "subscription snapshot create orders/mail noon", "noon", "0:1")
	s.fails("subscription snapshot create orders/mail noon", "already")
	s.ok("", "sub orders/mail --max 2", "b", "c")
	s.ok("", "subscription snapshot list orders/mail", "noon", "0:1")
	s.ok("", "subscription seek orders/mail --snapshot noon")
	s.ok("", "sub orders/mail --max 2", "b", "c")
	s.fails("subscription seek orders/mail --snapshot night", "noon")
	s.fails("subscription seek orders/mail", "--snapshot")
	s.fails("subscription seek orders/mail earliest --snapshot noon", "either")
	s.ok("", "subscription snapshot delete orders/mail noon", "deleted")
	s.fails("subscription snapshot delete orders/mail noon", "no snapshot")

	var moved struct{ Cursors []struct{ Cursor string } }
	s.ok("", "subscription snapshot create orders/mail night --json", `"cursor":"3"`)
	s.post("Seek", `{"subscription":"orders/mail","snapshot":"night"}`, &moved)
	if len(moved.Cursors) != 1 || moved.Cursors[0].Cursor != "3" {
		t.Fatalf("%+v", moved)
	}
}
