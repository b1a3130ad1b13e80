package subscription

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

const (
	staleMapRetry = 20 * time.Millisecond // until meta's next entry is likely applied here
	fullRetry     = 100 * time.Millisecond
	proposeRetry  = 20 * time.Millisecond // after raft dropped a proposal
	holesRetry    = time.Second           // until what lies between acks is likely acked
)

// Config is one coordinator's. Apply reads none of it.
type Config struct {
	Group      model.GroupID // this coordinator's own
	MaxMembers int           // per subscription; 0: 1,000
	Waiting    int           // requests held at once; 0: 4,096
	Unpack     batch.Unpack  // for dead letters out of packed batches; nil: they wait
	MaxAhead   int           // ranges acknowledged ahead of a partition's cursor; 0: 100,000
}

// Machine is one coordinator group.
type Machine struct {
	config Config
	state  state
	lead   *lead // nil: not leading
	// lastAsk numbers asks of other groups over all leaderships of this replica.
	lastAsk uint64
}

var (
	_ group.Machine = (*Machine)(nil)
	_ group.Asker   = (*Machine)(nil)
)

// New makes an empty coordinator.
func New(config Config) *Machine {
	if config.MaxMembers == 0 {
		config.MaxMembers = 1000
	}
	if config.Waiting == 0 {
		config.Waiting = 4096
	}
	if config.MaxAhead == 0 {
		config.MaxAhead = 100_000
	}
	return &Machine{config: config, state: state{subscriptions: map[model.SubscriptionID]*subscription{}}}
}

// wait is a request held until something happens.
type wait struct {
	ref    group.Ref
	req    call.Request
	id     model.SubscriptionID // once known
	parked bool                 // in its subscription's list
	gone   bool                 // cancelled or answered: whoever finds it drops it
	// proposed: an entry that carries its effect may be committed.
	proposed bool
	// results are an ack's, by partition named. Those of the entry's items, each
	// at its place, are open until it is applied.
	results []call.AckResult
	items   []ackItem
	places  []int
}

// Apply implements group.Machine. An entry this build cannot read is fatal:
// going on without it would make this replica differ from the others.
func (m *Machine) Apply(h group.Host, e group.Entry) {
	cmd, err := decodeEntry(e.Data)
	if err != nil {
		panic(fmt.Sprintf("coordinator group %d: entry %d of term %d: %v", m.config.Group, e.Index, e.Term, err))
	}
	out := cmd.command.apply(&m.state)
	if m.lead == nil || cmd.origin != m.lead.origin {
		return
	}
	if p := m.lead.pending[cmd.sequence]; p != nil {
		delete(m.lead.pending, cmd.sequence)
		m.applied(h, p, out)
	}
}

// Snapshot implements group.Machine.
func (m *Machine) Snapshot() []byte { return m.state.encode() }

// Restore implements group.Machine.
func (m *Machine) Restore(snapshot []byte) error {
	if m.lead != nil {
		panic("a leading coordinator cannot be restored")
	}
	return m.state.decode(snapshot)
}

// LeaderStart implements group.Machine. Every member gets its session timeout in full.
func (m *Machine) LeaderStart(h group.Host) {
	m.lead = newLead(h)
	for _, id := range m.state.ids() {
		st := m.state.subscriptions[id]
		m.lead.subscription(id).inherit(st, h.Now())
		t := m.terms(h, id)
		st.inheritShared(h.Now().Add(t.ack))
	}
	for _, id := range m.state.ids() {
		m.settle(h, id)
	}
}

// LeaderStop implements group.Machine.
func (m *Machine) LeaderStop(h group.Host) {
	l := m.lead
	m.lead = nil
	if l == nil {
		return
	}
	for _, ref := range slices.Sorted(maps.Keys(l.waits)) {
		if l.waits[ref].proposed {
			h.Reply(ref, nil, model.Reasoned(model.Unavailable, model.ReasonUnknownOutcome, 0,
				"the coordinator lost leadership before the outcome was known; safe to ask again"))
		} else {
			h.Reply(ref, nil, h.NotLeader())
		}
	}
}

// Handle implements group.Machine.
func (m *Machine) Handle(h group.Host, ref group.Ref, req call.Request) {
	if m.lead == nil || !h.Leading() {
		h.Reply(ref, nil, h.NotLeader())
		return
	}
	if len(m.lead.waits) >= m.config.Waiting {
		h.Reply(ref, nil, model.Reasoned(model.ResourceExhausted, model.ReasonThrottled, fullRetry,
			"the coordinator holds %d requests, its limit; ask again later", len(m.lead.waits)))
		return
	}
	w := &wait{ref: ref, req: req}
	m.serve(h, w)
	if w.parked {
		m.advance(h, w.id)
	}
}

// serve answers a request, or holds it where its next event finds it. It may be
// called again for a parked one and has no effect before it stops parking.
func (m *Machine) serve(h group.Host, w *wait) {
	target := targetOf(w.req)
	if target == nil {
		m.finish(h, w, nil, model.Errorf(model.Unimplemented, "a coordinator does not serve %T", w.req))
		return
	}
	def, err := m.resolve(h, target)
	if err != nil {
		m.finish(h, w, nil, err)
		return
	}
	w.id = def.ID
	ls, st := m.lead.subscription(def.ID), m.state.subscriptions[def.ID]
	if st == nil || len(st.partitions) < partitionsOf(h, def) {
		m.park(w)
		return
	}
	switch req := w.req.(type) {
	case *call.Grant:
		m.serveGrant(h, w, st, ls, req)
	case *call.Deliver:
		m.serveDeliver(h, w, st, ls, req)
	case *call.AckCursors:
		m.serveAck(h, w, st, ls, req)
	case *call.NackCursors:
		m.serveNack(h, w, st, ls, req)
	case *call.ExtendLeases:
		m.serveExtend(h, w, st, ls, req)
	case *call.MoveCursors:
		m.serveMove(h, w, st, req)
	case *call.Leave:
		m.serveLeave(h, w, st, ls, req)
	case *call.Heartbeat:
		m.serveHeartbeat(h, w, st, ls, req)
	case *call.KeepCursors:
		m.serveKeep(h, w, st, req)
	case *call.Describe, *call.ListCursors:
		m.hold(w)
		h.ReadIndex(w.ref)
	}
}

func targetOf(req call.Request) *call.Target {
	switch req := req.(type) {
	case *call.Grant:
		return &req.Target
	case *call.Deliver:
		return &req.Target
	case *call.AckCursors:
		return &req.Target
	case *call.NackCursors:
		return &req.Target
	case *call.ExtendLeases:
		return &req.Target
	case *call.MoveCursors:
		return &req.Target
	case *call.Leave:
		return &req.Target
	case *call.Heartbeat:
		return &req.Target
	case *call.KeepCursors:
		return &req.Target
	case *call.ListCursors:
		return &req.Target
	case *call.Describe:
		return &req.Target
	}
	return nil
}

// resolve finds the definition a request means.
func (m *Machine) resolve(h group.Host, t *call.Target) (*model.Subscription, *model.Error) {
	catalog := h.Catalog()
	def, ok := catalog.Subscription(t.Subscription)
	stale := model.Reasoned(model.Unavailable, model.ReasonStaleMap, staleMapRetry,
		"the coordinator knows the map of version %d, the request was made with %d; ask again",
		catalog.Version(), t.MapVersion)
	if !ok {
		if _, _, err := model.SplitRef("subscription", t.Subscription); err != nil {
			return nil, err
		}
		if t.MapVersion > catalog.Version() {
			return nil, stale
		}
		return nil, model.Errorf(model.NotFound, "there is no subscription %q", t.Subscription)
	}
	if def.Coordinator != m.config.Group {
		return nil, stale
	}
	return def, nil
}

// partitionsOf is how many partitions a definition covers by now.
func partitionsOf(h group.Host, def *model.Subscription) int {
	n := len(def.StartsAt)
	if topic, ok := h.Catalog().TopicByID(def.Topic); ok {
		n = max(n, len(topic.Partitions))
	}
	return n
}

// hold keeps a request until its event; park until the subscription's next
// structural command.
func (m *Machine) hold(w *wait) { m.lead.waits[w.ref] = w }

func (m *Machine) park(w *wait) {
	m.hold(w)
	w.parked = true
	ls := m.lead.subscription(w.id)
	ls.parked = append(ls.parked, w)
}

func (m *Machine) finish(h group.Host, w *wait, resp call.Response, err *model.Error) {
	if w.gone {
		return
	}
	w.gone = true
	delete(m.lead.waits, w.ref)
	h.Reply(w.ref, resp, err)
}

// Cancel implements group.Machine.
func (m *Machine) Cancel(h group.Host, ref group.Ref) {
	if m.lead == nil {
		return
	}
	w := m.lead.waits[ref]
	if w == nil {
		return
	}
	w.gone = true
	delete(m.lead.waits, ref)
	same := func(o *wait) bool { return o == w }
	m.lead.acks = slices.DeleteFunc(m.lead.acks, same)
	m.lead.leases = slices.DeleteFunc(m.lead.leases, same)
	if ls := m.lead.subscriptions[w.id]; ls != nil {
		ls.parked = slices.DeleteFunc(ls.parked, same)
	}
}

// ReadIndexDone implements group.Machine.
func (m *Machine) ReadIndexDone(h group.Host, ref group.Ref) {
	if m.lead == nil || m.lead.waits[ref] == nil {
		return
	}
	w := m.lead.waits[ref]
	st, ls := m.state.subscriptions[w.id], m.lead.subscriptions[w.id]
	if st == nil || ls == nil {
		m.finish(h, w, nil, gone(w.id))
		return
	}
	switch req := w.req.(type) {
	case *call.Deliver:
		m.finishDeliver(h, w, st, ls, req)
	case *call.Describe:
		m.finishDescribe(h, w, st, ls)
	case *call.ListCursors:
		m.finishList(h, w, st)
	}
}

// ReadDone implements group.Machine; a coordinator reads no batches.
func (m *Machine) ReadDone(group.Host, uint64, []byte, *model.Error) {}

// CatalogChanged implements group.Machine: partitions may have come, or
// subscriptions gone.
func (m *Machine) CatalogChanged(h group.Host) {
	if m.lead == nil {
		return
	}
	for _, id := range m.state.ids() {
		m.advance(h, id)
	}
}

// Tick implements group.Machine.
func (m *Machine) Tick(h group.Host) {
	l := m.lead
	if l == nil {
		return
	}
	l.wakeAt = model.Never
	for _, id := range slices.Sorted(maps.Keys(l.subscriptions)) {
		ls := l.subscriptions[id]
		if st := m.state.subscriptions[id]; st != nil && ls.nextDeadline <= h.Now() {
			m.lapse(h, st, ls)
			m.bury(h, st, ls)
		}
		switch {
		case ls.nextDeadline > h.Now():
			m.note(h, ls.nextDeadline)
		case ls.busy == 0:
			m.settle(h, id)
		default:
			m.noteDeadline(h, id)
		}
	}
}
