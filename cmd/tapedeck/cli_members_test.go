package main

import "testing"

func TestCommandsAboutMembers(t *testing.T) {
	s := shell{t, startTestCluster(t, 4, "").nodes[3].URL()}
	s.ok("", "topic create orders")
	s.ok("one\ntwo\nthree\n", "pub orders")
	s.ok("", "node list", "n4", "REPLICAS", "reachable")

	// Whichever three nodes hold it, draining n1 and n2 one after the other moves things.
	s.ok("", "node drain n1", "n1: empty")
	s.ok("", "node list", "draining")
	s.fails("node drain n2", "add a node first")
	s.ok("", "node drain n1 --undo", "takes replicas again")
	s.ok("", "partition move orders 0 --from n2 --to n1", "moved from n2 to n1")
	s.fails("partition move orders 0 --from n2 --to n1", "n1")
	s.ok("", "partition transfer orders 0 --to n1", "handed over to n1")
	s.fails("partition transfer orders 0 --to n2", "no replica")
	s.ok("", "node rebuild n3", "fresh copy")
	s.fails("node rebuild n9", "n9")

	s.fails("node remove n2", "drain it first")
	s.ok("", "node drain n2 --json", `{"node":"n2"}`)
	s.ok("", "node remove n2", "removed")
	s.ok("", "node list --json", `"node":"n3"`)
	s.ok("", "fetch orders", "one", "two", "three")
}
