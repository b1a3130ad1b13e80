package core

import (
	"testing"

	"github.com/tapedeck/tapedeck/core/model"
)

// A cluster that is started at other addresses uses those it was started with,
// and its catalog learns them.
func TestNodesStartedAtOtherAddressesAreFoundThere(t *testing.T) {
	r := newRig(t, 3, Limits{})
	r.startAll()
	r.createTopic("orders", 1, 3)
	for _, id := range r.names {
		r.nodes[id].crash()
	}
	for i := range r.cfg.Peers {
		r.cfg.Peers[i].Address = "new " + r.cfg.Peers[i].Address
	}
	var sentAstray []model.Node
	r.stop = func(_ *rigNode, e Effect) bool {
		if p, ok := e.(Peer); ok {
			sentAstray = append(sentAstray, p.Node)
		}
		return false
	}
	r.startAll()
	r.publish("n2", "orders", "m")
	r.until("the catalog to know the new addresses", func() bool {
		for _, id := range r.names {
			nodes := r.nodes[id].s.Nodes()
			for _, n := range nodes {
				if n.Address != "new "+string(n.ID) {
					return false
				}
			}
			if len(nodes) != 3 {
				return false
			}
		}
		return true
	})
	if len(sentAstray) > 0 {
		t.Fatalf("the catalog's addresses went over the configured ones: %v", sentAstray)
	}
}
