package meta

import (
	"fmt"
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// maxWaiting bounds the requests that wait for their entry or for a read
// point; more are THROTTLED.
const maxWaiting = 4096

// retryAfter is the hint given when meta itself cannot take a request now.
const retryAfter = 100 * time.Millisecond

// Machine is meta's replicated state with the leader's waiting requests.
type Machine struct {
	state *state

	// Leader-only memory. Entries are applied in the order they were proposed
	// in, so pending is a queue; sequences rise over the machine's life.
	sequence uint64
	pending  []waiting
	barriers []group.Ref
}

// waiting is a request whose entry was proposed.
type waiting struct {
	sequence  uint64
	ref       group.Ref
	cancelled bool
}

var _ group.Machine = (*Machine)(nil)

// New makes the machine of a founding that Validate accepts.
func New(f Founding) *Machine {
	if err := f.Validate(); err != nil {
		panic("meta: " + err.Error())
	}
	return &Machine{state: found(f)}
}

// Catalog is the state as applied so far: always the current one, so it may be
// kept; what it returns is of the moment of asking.
func (m *Machine) Catalog() model.Catalog { return m.state }

// Cluster is the cluster's id.
func (m *Machine) Cluster() uint64 { return m.state.cluster }

// command is what a meta entry carries: a request, and what its leader added.
type command struct {
	sequence uint64     // the leader's own count, by which it knows the entry again
	wall     model.Wall // the leader's wall clock; 0: not to be trusted just now
	request  []byte     // by call.Encode
}

const commandVersion = 1

// Code implements wire.Coder.
func (v *command) Code(c *wire.Codec) {
	c.Version(commandVersion)
	wire.Uint(c, &v.sequence)
	wire.Int(c, &v.wall)
	c.Bytes(&v.request)
}

func decodeCommand(data []byte) (command, call.Request, error) {
	var cmd command
	if err := wire.Decode(data, &cmd); err != nil {
		return cmd, nil, err
	}
	req, err := call.Decode(cmd.request)
	if err != nil {
		return cmd, nil, err
	}
	if !changes(req) {
		return cmd, nil, fmt.Errorf("%T is not a change of meta", req)
	}
	return cmd, req, nil
}

// changes says whether a request is one that an entry may carry.
func changes(req call.Request) bool {
	switch req.(type) {
	case *call.CreateTopic, *call.UpdateTopic, *call.DeleteTopic,
		*call.CreateSubscription, *call.UpdateSubscription, *call.DeleteSubscription,
		*call.OpenProducer, *call.JoinNode, *call.DrainNode, *call.RemoveNode, *call.RebuildNode,
		*call.MovePartition, *call.ReportChange:
		return true
	}
	return false
}

// Handle implements group.Machine.
func (m *Machine) Handle(h group.Host, ref group.Ref, req call.Request) {
	_, barrier := req.(*call.Barrier)
	switch {
	case !barrier && !changes(req):
		h.Reply(ref, nil, model.Errorf(model.Internal, "meta does not serve calls of kind %d", req.Kind()))
		return
	case !h.Leading():
		h.Reply(ref, nil, h.NotLeader())
		return
	case len(m.pending)+len(m.barriers) >= maxWaiting:
		h.Reply(ref, nil, throttled("%d requests wait for meta already", maxWaiting))
		return
	}
	if barrier {
		m.barriers = append(m.barriers, ref)
		h.ReadIndex(ref)
		return
	}
	if err := validate(req); err != nil {
		h.Reply(ref, nil, err)
		return
	}
	cmd := command{sequence: m.sequence + 1, request: call.Encode(nil, req)}
	if h.WallTrusted() {
		cmd.wall = h.Wall()
	}
	if !h.Propose(wire.Encode(&cmd)) {
		h.Reply(ref, nil, throttled("meta's log takes no more changes just now"))
		return
	}
	m.sequence++
	m.pending = append(m.pending, waiting{sequence: m.sequence, ref: ref})
}

func throttled(format string, args ...any) *model.Error {
	return model.Reasoned(model.ResourceExhausted, model.ReasonThrottled, retryAfter, format+"; try again", args...)
}

// Apply implements group.Machine.
func (m *Machine) Apply(h group.Host, e group.Entry) {
	cmd, req, err := decodeCommand(e.Data)
	if err != nil {
		// The log is committed and its bytes are checked: going on would make
		// this replica differ from the others.
		panic(fmt.Sprintf("meta: entry %d of term %d cannot be applied by this build: %v", e.Index, e.Term, err))
	}
	m.state.version = e.Index
	m.state.clock = max(m.state.clock, cmd.wall)
	resp, refusal := m.state.apply(req)
	if !h.Leading() {
		return
	}
	if ref, ok := m.takePending(h, cmd.sequence); ok {
		h.Reply(ref, resp, refusal)
	}
}

// takePending finds who waits for the entry. Between LeaderStart and LeaderStop
// every entry is of this machine's own proposing, in order; one that was passed
// over will not come.
func (m *Machine) takePending(h group.Host, sequence uint64) (group.Ref, bool) {
	for len(m.pending) > 0 && m.pending[0].sequence <= sequence {
		w := m.pending[0]
		m.pending = m.pending[1:]
		if w.sequence == sequence {
			return w.ref, !w.cancelled
		}
		if !w.cancelled {
			h.Reply(w.ref, nil, unknownOutcome())
		}
	}
	return 0, false
}

func unknownOutcome() *model.Error {
	return model.Reasoned(model.Unavailable, model.ReasonUnknownOutcome, retryAfter,
		"meta's leader changed before the change was known to be made; look, or ask for the same again")
}

// Snapshot implements group.Machine.
func (m *Machine) Snapshot() []byte { return wire.Encode(m.state) }

// Restore implements group.Machine.
func (m *Machine) Restore(snapshot []byte) error {
	s, err := restore(snapshot)
	if err != nil {
		return err
	}
	*m.state = *s // in place: the Catalog handed out stays the current one
	return nil
}

// LeaderStart implements group.Machine. Everything a leader needs is in the state.
func (m *Machine) LeaderStart(group.Host) { m.pending, m.barriers = nil, nil }

// LeaderStop implements group.Machine.
func (m *Machine) LeaderStop(h group.Host) {
	for _, w := range m.pending {
		if !w.cancelled {
			h.Reply(w.ref, nil, unknownOutcome())
		}
	}
	for _, ref := range m.barriers {
		h.Reply(ref, nil, h.NotLeader())
	}
	m.pending, m.barriers = nil, nil
}

// Cancel implements group.Machine. A proposed change keeps its place in the
// queue: its entry will come.
func (m *Machine) Cancel(_ group.Host, ref group.Ref) {
	for i := range m.pending {
		if m.pending[i].ref == ref {
			m.pending[i].cancelled = true
		}
	}
	m.barriers = slices.DeleteFunc(m.barriers, func(r group.Ref) bool { return r == ref })
}

// ReadIndexDone implements group.Machine.
func (m *Machine) ReadIndexDone(h group.Host, ref group.Ref) {
	i := slices.Index(m.barriers, ref)
	if i < 0 {
		return
	}
	m.barriers = slices.Delete(m.barriers, i, i+1)
	h.Reply(ref, &call.Done{MapVersion: m.state.version}, nil)
}

// ReadDone implements group.Machine; meta reads no segments.
func (m *Machine) ReadDone(group.Host, uint64, []byte, *model.Error) {}

// CatalogChanged implements group.Machine; the catalog is meta itself.
func (m *Machine) CatalogChanged(group.Host) {}

// Tick implements group.Machine; meta asks for no wake-up.
func (m *Machine) Tick(group.Host) {}
