package subscription

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

func encode(e *entry) []byte { return wire.Encode(e) }

// applied follows the application of a command proposed in this leadership.
func (m *Machine) applied(h group.Host, p *proposal, out outcome) {
	switch c := p.command.(type) {
	case *ackCommand:
		m.ackApplied(h, p, c, out)
	case *seekCommand:
		out.moved = c.to
		m.seekApplied(h, p, c.id, out)
	case *restoreCommand:
		m.seekApplied(h, p, c.id, out)
	case *keepCommand, *forgetCommand:
		m.keepApplied(h, p, out)
	case *skipCommand:
		m.skipApplied(h, p, c.id, out)
	case *passCommand:
		m.skipApplied(h, p, c.skip.id, out)
	case *lapseCommand:
		m.lapseApplied(h, p, c, out)
	case *leaseCommand:
		m.leaseApplied(h, p, c, out)
	case *returnCommand:
		m.returnApplied(h, p, c, out)
	case *letterCommand:
		m.letterApplied(h, c.id, c.source)
	case *letteredCommand:
		m.letterApplied(h, c.id, c.source)
	case *initCommand:
		m.structuralApplied(h, c.id)
	case *growCommand:
		m.structuralApplied(h, c.id)
	case *dropCommand:
		m.structuralApplied(h, c.id)
	case *membersCommand:
		m.structuralApplied(h, c.id)
	case *assignCommand:
		m.structuralApplied(h, c.id)
	}
}

func (m *Machine) structuralApplied(h group.Host, id model.SubscriptionID) {
	ls := m.lead.subscription(id)
	ls.busy = 0
	if st := m.state.subscriptions[id]; st != nil {
		ls.syncSessions(st, h.Now())
	}
	m.settle(h, id)
}

// settle proposes what is due, serves the parked requests again, and proposes
// what they asked for.
func (m *Machine) settle(h group.Host, id model.SubscriptionID) {
	m.advance(h, id)
	ls := m.lead.subscriptions[id]
	if ls == nil || len(ls.parked) == 0 {
		return
	}
	parked := ls.parked
	ls.parked = nil
	for _, w := range parked {
		if w.gone {
			continue
		}
		w.parked = false
		m.serve(h, w)
		if w.parked && w.id != id {
			m.advance(h, w.id) // its name means another subscription by now
		}
	}
	m.advance(h, id)
}

// advance proposes the structural command a subscription needs most, unless one
// is under way.
func (m *Machine) advance(h group.Host, id model.SubscriptionID) {
	ls := m.lead.subscriptions[id]
	if ls == nil {
		return
	}
	if st := m.state.subscriptions[id]; st != nil {
		m.bury(h, st, ls)
	}
	if ls.busy != 0 {
		m.noteDeadline(h, id)
		return
	}
	c := m.structural(h, id, ls)
	if c == nil {
		if m.state.subscriptions[id] == nil && len(ls.parked) == 0 {
			delete(m.lead.subscriptions, id)
		}
	} else if ls.dropped = !m.propose(h, c); !ls.dropped {
		ls.busy = c.kind()
		if c, ok := c.(*membersCommand); ok {
			ls.membersProposed(c)
		}
	}
	m.noteDeadline(h, id)
}

func (m *Machine) structural(h group.Host, id model.SubscriptionID, ls *leadSubscription) command {
	st := m.state.subscriptions[id]
	def, known := h.Catalog().SubscriptionByID(id)
	switch {
	case st == nil && !known:
		return nil
	case st == nil:
		return initFrom(h, def)
	case !known && h.Catalog().Version() >= st.born:
		return &dropCommand{id: id, version: h.Catalog().Version()}
	case known && partitionsOf(h, def) > len(st.partitions):
		return &growCommand{id: id, partitions: uint32(partitionsOf(h, def))}
	}
	// Ends go first, lest partitions go to who is about to leave. Joins go last:
	// under a stream of them partitions must still find owners.
	if leaves := m.leavesDue(h, st, ls); len(leaves) > 0 {
		return &membersCommand{id: id, leaves: leaves, lapses: ls.deaths(st, leaves), died: ls.died(leaves)}
	}
	if !st.shared() { // else nobody owns a partition
		if changes := m.assign(h, st, ls); len(changes) > 0 {
			return &assignCommand{id: id, generation: st.generation, changes: changes}
		}
	}
	if joins := ls.joinsDue(st); len(joins) > 0 {
		return &membersCommand{id: id, joins: joins, limit: uint32(m.config.MaxMembers)}
	}
	return nil
}

func initFrom(h group.Host, def *model.Subscription) command {
	c := &initCommand{id: def.ID, ref: def.Ref(), topic: def.Topic, mode: def.Settings.Mode,
		keyed: def.Settings.KeyOrdered, born: h.Catalog().Version(), cursors: make([]model.Offset, partitionsOf(h, def))}
	copy(c.cursors, def.StartsAt)
	return c
}

// leavesDue lists the sessions whose end is asked for or whose time is up.
func (m *Machine) leavesDue(h group.Host, st *subscription, ls *leadSubscription) (due []leaving) {
	timeout := m.terms(h, st.id).session
	for _, mb := range st.members {
		s, l := ls.sessions[mb.id], leaving{mb.id, mb.joined}
		if h.Now() >= s.heard.Add(timeout) || slices.Contains(ls.leaves, l) {
			due = append(due, l)
		}
	}
	if len(due) == 0 {
		ls.leaves = nil // whoever asked has left already
	}
	return due
}

// deaths are the first messages that members held whose sessions end for their
// silence. Who leaves of its own accord gives back what it holds.
func (ls *leadSubscription) deaths(st *subscription, leaves []leaving) (out []lapse) {
	for _, l := range leaves {
		if ls.asked(l) {
			continue
		}
		for _, p := range ls.ownedBy(st, l.member) {
			part := &st.partitions[p]
			if part.cursor < ls.at(st, p).leased {
				out = append(out, part.lapse(p, part.cursor))
			}
		}
	}
	return out
}

// asked says that a member leaves of its own accord.
func (ls *leadSubscription) asked(l leaving) bool { return slices.Contains(ls.leaves, l) }

// joinsDue lists the members to add or to change.
func (ls *leadSubscription) joinsDue(st *subscription) []joining {
	ls.joins = slices.DeleteFunc(ls.joins, func(j joining) bool {
		mb := st.member(j.member)
		return mb != nil && mb.static == j.static
	})
	return ls.joins
}

// membersProposed marks what is under way: those requests' outcome is not known
// until it is applied.
func (ls *leadSubscription) membersProposed(c *membersCommand) {
	under := map[model.MemberID]bool{}
	if len(c.leaves) > 0 {
		ls.leaves = nil
	}
	for _, l := range c.leaves {
		ls.sessions[l.member].ending = true
		under[l.member] = true
	}
	if len(c.joins) > 0 {
		ls.joins = nil
	}
	for _, j := range c.joins {
		under[j.member] = true
	}
	for _, w := range ls.parked {
		if under[memberOf(w.req)] {
			w.proposed = true
		}
	}
}

// assign says which partitions get a new owner now, and marks those that their
// holders have to give up first.
func (m *Machine) assign(h group.Host, st *subscription, ls *leadSubscription) []change {
	now := h.Now()
	t := m.terms(h, st.id)
	ackDeadline := t.ack
	members := slices.SortedFunc(slices.Values(st.members), func(a, b member) int {
		return cmp.Compare(a.joined, b.joined)
	})
	index := make(map[model.MemberID]int, len(members))
	for i, mb := range members {
		index[mb.id] = i
	}
	owners := make([]int, len(st.partitions))
	for p := range st.partitions {
		owners[p] = -1
		if o := st.partitions[p].owner; o != "" {
			owners[p] = index[o]
		}
	}
	certain := now >= m.lead.since.Add(ackDeadline)
	ls.inheriting, ls.revoking, ls.settleAt = false, false, model.Never
	give, quota := plan(owners, len(members), func(p int) int {
		rank := m.rank(ls.at(st, model.Partition(p)), &st.partitions[p], certain)
		return ls.calm(p, rank, now, t.session)
	})
	var free []int
	for p := range st.partitions {
		mem := ls.at(st, model.Partition(p))
		if !give[p] {
			mem.revoking = false
			if owners[p] == -1 {
				free = append(free, p)
			}
			ls.inheriting = ls.inheriting || !certain && mem.inherited
			continue
		}
		if !mem.revoking {
			mem.revoking, mem.revokedAt = true, now
		}
		ls.revoking = true
		if mem.out(&st.partitions[p]) == 0 || now >= mem.revokedAt.Add(ackDeadline) {
			free = append(free, p)
		}
	}
	to := share(owners, quota, free)
	changes := make([]change, 0, len(to))
	for _, p := range slices.Sorted(maps.Keys(to)) {
		changes = append(changes, change{model.Partition(p), members[to[p]].id})
		if st.partitions[p].fence > 1 { // else nobody ever had it
			ls.noteShift(p, now, t.session)
		}
	}
	return changes
}

// rank says how gladly a partition is given up: one already being given up
// first, then one with nothing outstanding. What an earlier leader delivered is
// not known, so an inherited one stays until its ack deadline has passed.
func (m *Machine) rank(mem *partitionMemory, part *partition, certain bool) int {
	switch {
	case mem.inherited && !certain:
		return mayNotGive
	case mem.revoking:
		return alreadyGiving
	case mem.out(part) == 0:
		return nothingOut
	}
	return muchOut
}
