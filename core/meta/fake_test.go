package meta

import (
	"fmt"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

// host is a group of one: what is proposed waits in entries until commit.
// Methods that meta has no business to call panic through the nil interface.
type host struct {
	group.Host
	leading bool
	full    bool // Propose refuses
	wall    model.Wall
	trusted bool
	entries [][]byte
	index   uint64
	reads   []group.Ref
	replies map[group.Ref]reply
}

type reply struct {
	resp call.Response
	err  *model.Error
}

func newHost() *host {
	return &host{leading: true, trusted: true, wall: 1000, replies: map[group.Ref]reply{}}
}

func (h *host) Leading() bool     { return h.leading }
func (h *host) Wall() model.Wall  { return h.wall }
func (h *host) WallTrusted() bool { return h.trusted }
func (h *host) NotLeader() *model.Error {
	return model.Reasoned(model.FailedPrecondition, model.ReasonNotLeader, 0, "n2 leads")
}
func (h *host) ReadIndex(ref group.Ref) { h.reads = append(h.reads, ref) }

func (h *host) Propose(data []byte) bool {
	if !h.full {
		h.entries = append(h.entries, data)
	}
	return !h.full
}

func (h *host) Reply(ref group.Ref, resp call.Response, err *model.Error) {
	if _, twice := h.replies[ref]; twice {
		panic(fmt.Sprintf("ref %d is replied to twice", ref))
	}
	h.replies[ref] = reply{resp, err}
}

// commit applies what was proposed to the machines, of which the host is the first's.
func (h *host) commit(machines ...*Machine) {
	follower := &host{}
	for _, data := range h.entries {
		h.index++
		e := group.Entry{Index: h.index, Term: 1, Data: data}
		for i, m := range machines {
			if i == 0 {
				m.Apply(h, e)
			} else {
				m.Apply(follower, e)
			}
		}
	}
	h.entries = nil
}

// do asks, commits and takes the reply.
func (h *host) do(t testing.TB, m *Machine, req call.Request) (call.Response, *model.Error) {
	t.Helper()
	const ref = 1 << 40
	m.Handle(h, ref, req)
	h.commit(m)
	r, ok := h.replies[ref]
	if !ok {
		t.Fatalf("%T got no reply", req)
	}
	delete(h.replies, ref)
	return r.resp, r.err
}

func (h *host) must(t testing.TB, m *Machine, req call.Request) call.Response {
	t.Helper()
	resp, err := h.do(t, m, req)
	if err != nil {
		t.Fatalf("%T: %v", req, err)
	}
	return resp
}

func founding(nodes int) Founding {
	f := Founding{Cluster: 7, Coordinators: 4}
	for i := range nodes {
		f.Nodes = append(f.Nodes, model.Node{
			ID: model.NodeID(fmt.Sprintf("n%03d", i+1)), Disk: model.DiskID(100 + i), Address: "h:1",
		})
	}
	return f
}

const day = 24 * time.Hour
