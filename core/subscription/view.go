package subscription

import (
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/tapedeck/tapedeck/core/model"
)

// View is a subscription's replicated state, to look at: a copy.
type View struct {
	Ref        string
	Topic      model.TopicID
	Shared     bool
	Generation model.Generation
	Members    []MemberView    // by id
	Partitions []PartitionView // by number
}

// MemberView is one member's.
type MemberView struct {
	ID     model.MemberID
	Static bool
	Joined uint64 // its number among all that ever joined
	Leased uint64 // shared: messages that are out with it
}

// PartitionView is one partition's. (partition, Fence) never has two owners.
type PartitionView struct {
	Cursor model.Offset
	Owner  model.MemberID // empty: none
	Fence  model.Generation
	Acked  uint64 // messages acknowledged ahead of the cursor
}

// Each shows every subscription, by id, on any replica.
func (m *Machine) Each(f func(id model.SubscriptionID, v View)) {
	for _, id := range m.state.ids() {
		s := m.state.subscriptions[id]
		v := View{Ref: s.ref, Topic: s.topic, Shared: s.shared(), Generation: s.generation,
			Members: make([]MemberView, 0, len(s.members)), Partitions: make([]PartitionView, 0, len(s.partitions))}
		for _, mb := range s.members {
			own := uint64(0)
			if s.shared() {
				own, _ = s.held(mb.joined)
			}
			v.Members = append(v.Members, MemberView{mb.id, mb.static, mb.joined, own})
		}
		for _, p := range s.partitions {
			v.Partitions = append(v.Partitions, PartitionView{p.cursor, p.owner, p.fence,
				p.acked.within(p.cursor, math.MaxUint64)})
		}
		f(id, v)
	}
}

// Hash is xxhash64 of the snapshot: equal on replicas that applied the same entries.
func (m *Machine) Hash() uint64 { return xxhash.Sum64(m.Snapshot()) }
