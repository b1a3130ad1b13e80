package core

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/replica"
	"github.com/tapedeck/tapedeck/core/subscription"
	"github.com/tapedeck/tapedeck/core/wire"
)

// Touched lists the groups that the last step worked on, possibly repeated.
func (s *Shard) Touched() []model.GroupID { return s.touched }

// Replica is the replica of a group here; nil if there is none.
func (s *Shard) Replica(g model.GroupID) *replica.Replica {
	if m := s.byGroup[g]; m != nil {
		return m.r
	}
	return nil
}

// Replicas lists the groups with a replica here, by id.
func (s *Shard) Replicas() []model.GroupID {
	out := make([]model.GroupID, len(s.members))
	for i, m := range s.members {
		out[i] = m.id
	}
	return out
}

// Catalog is the cluster's map as applied here; nil before the founding.
func (s *Shard) Catalog() model.Catalog {
	if s.meta == nil {
		return nil
	}
	return s.meta.Catalog()
}

// Ready says that this node knows a leader of the meta group.
func (s *Shard) Ready() bool {
	r := s.Replica(model.MetaGroup)
	if r == nil {
		return false
	}
	_, ok := r.LeaderNode()
	return ok
}

// Load is what waits in the shard, for metrics and bounds.
type Load struct {
	Groups, Leading int
	Calls           int // groups' requests not answered yet
	Reads           int // stored reads under way
	JournalQueue    int // records not reported durable yet
	Checkpoints     uint64
	DeadLetters     int // messages that wait for their dead-letter topic, of groups that lead here
	Copies          int // snapshots whose messages are being copied here first
	// Stored batches that were found damaged, and of those the ones that were put
	// right and that could not be; bytes read over for damage. Since the start.
	Damaged, Repaired, Unrepaired, Scrubbed uint64
	DiskLow                                 bool // publishes are refused
	Behind                                  bool // … since segments are not written fast enough
}

// Load describes what waits.
func (s *Shard) Load() Load {
	l := Load{Groups: len(s.members), Calls: len(s.refs), Reads: len(s.reads), JournalQueue: len(s.journal.queue),
		Checkpoints: s.journal.checkpoints, Damaged: s.damage.found, Repaired: s.damage.repaired,
		Unrepaired: s.damage.unrepaired, Scrubbed: s.scrub.bytes, DiskLow: s.diskLow, Behind: s.behind}
	for _, m := range s.members {
		if m.r.Leading() {
			l.Leading++
			if c, ok := m.r.Machine().(*subscription.Machine); ok {
				l.DeadLetters += c.DeadLettersWaiting(m)
			}
		}
		if m.copying != nil {
			l.Copies++
		}
	}
	return l
}

// PacketView is what a packet says to an observer of the network.
type PacketView struct {
	From, To model.Incarnation
	Raft     []RaftView
	Hellos   int
	Requests int
	Answers  int
}

// RaftView is a raft message in a packet.
type RaftView struct {
	Group   model.GroupID
	Message *pb.Message
}

// DecodePacket reads a packet's raft messages, for observers. The bytes are
// aliased, not changed.
func DecodePacket(data []byte) (PacketView, error) {
	c := wire.Codec{Buf: data, Decoding: true}
	var h header
	h.Code(&c)
	v := PacketView{From: h.from, To: h.to}
	for c.Err == nil && len(c.Buf) > 0 {
		kind := c.Buf[0]
		c.Buf = c.Buf[1:]
		var n uint64
		var body []byte
		switch kind {
		case itemHello:
			var h hello
			h.Code(&c)
			v.Hellos++
		case itemRaft:
			var r RaftView
			var m replica.Message
			wire.Uint(&c, &r.Group)
			m.Code(&c)
			r.Message = m.Message
			v.Raft = append(v.Raft, r)
		case itemRequest:
			wire.Uint(&c, &n)
			wire.Uint(&c, &n)
			c.Bytes(&body)
			v.Requests++
		case itemResponse:
			wire.Uint(&c, &n)
			skipError(&c)
			c.Bytes(&body)
			v.Answers++
		case itemCancel:
			wire.Uint(&c, &n)
		case itemSetBack:
			(&life{}).Code(&c)
		default:
			c.Fail(fmt.Errorf("packet item %d is unknown", kind))
		}
	}
	if c.Err != nil {
		return v, fmt.Errorf("decode packet: %w", c.Err)
	}
	return v, nil
}

func skipError(c *wire.Codec) {
	var err *model.Error
	call.CodeError(c, &err)
}
