// Package transport is the border between a node and the network.
package transport

import "github.com/tapedeck/tapedeck/core/model"

// Transport carries packets between nodes. A packet may be lost, late,
// repeated or overtaken; it is never changed. Between a loss and the next
// delivery the transport reports PeerDown to the receiver of its events when it
// can tell. Send never blocks: a full queue drops the packet.
type Transport interface {
	Send(to model.NodeID, packet []byte)
}
