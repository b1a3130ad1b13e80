package live

import (
	"sync"

	"github.com/tapedeck/tapedeck/core/model"
)

// directory says where nodes serve: the configured ones, and those that joined
// or moved since, as the shard learns of them.
type directory struct {
	mu    sync.RWMutex
	nodes map[model.NodeID]string
	moved func(n model.Node) // called for what changes; nil until the network is up
}

func newDirectory(peers []model.Node) *directory {
	d := &directory{nodes: map[model.NodeID]string{}}
	for _, p := range peers {
		d.nodes[p.ID] = p.Address
	}
	return d
}

// set takes a node's address; called by the shard's host.
func (d *directory) set(n model.Node) {
	d.mu.Lock()
	d.nodes[n.ID] = n.Address
	d.mu.Unlock()
	d.moved(n)
}

// address is where a node serves; empty when it is not known.
func (d *directory) address(id model.NodeID) string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.nodes[id]
}
