// Package grouptest is a Host for tests of a group.Machine: it stands for the
// shard, with a clock that moves only when told and a log that commits only
// when told.
//
// It owns proposals between Propose and Commit, the committed log (shared by
// the hosts of several replicas of one group), answers by Ref, and a store of
// batches in memory. It panics where a machine breaks the contract: a changed
// proposal, a second answer, a batch that does not follow the one before.
//
// A typical test:
//
//	h := grouptest.New(machine)
//	h.Lead()
//	resp, err := h.Do(&call.Append{Batch: b}) // handles, commits, answers
//
// Times are nanoseconds, as everywhere in model.
package grouptest

import (
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

// moment is how long Do lets pass for an answer that does not come at once.
const moment = 500 * time.Millisecond

// Epoch is the wall clock a new Host begins with: 2027-01-15 08:00 UTC.
const Epoch model.Wall = 1_800_000_000 * 1e9

// Log is a group's committed log. Hosts of several replicas may share one.
type Log struct{ Entries []group.Entry }

// Answer is what a request got.
type Answer struct {
	Resp call.Response
	Err  *model.Error
}

// Ask is a request to another group.
type Ask struct {
	ID    uint64
	Group model.GroupID
	Req   call.Request
}

// Ask implements group.Host.
func (h *Host) Ask(id uint64, g model.GroupID, req call.Request) {
	h.Asks = append(h.Asks, Ask{id, g, req})
}

// proposal is data handed to raft, with its hash at that time: nobody may change it later.
type proposal struct {
	data []byte
	hash uint64
}

// Host implements group.Host. Its exported fields may be set between calls.
type Host struct {
	Machine group.Machine
	Log     *Log
	Applied int    // entries of Log applied here, [0, Applied)
	Term    uint64 // of what is committed from here

	Mono    model.Mono
	WallNow model.Wall
	Trusted bool
	WakeAt  model.Mono
	Cat     *Catalog
	Leader  model.NodeID // named by NotLeader

	DropProposals bool // Propose answers false
	Proposals     int  // accepted so far

	Answers map[group.Ref]Answer
	Indexes []group.Ref // asked by ReadIndex, not yet done
	Asks    []Ask       // asked of other groups, not yet done: AskDone it yourself
	Notes   []string    // told to the operator
	Reads   []StoreRead // asked by Read and ReadAt, not yet done
	Store   Store

	leading   bool
	pending   []proposal
	cancelled map[group.Ref]bool
	lastRef   group.Ref
	random    uint64
}

var (
	_ group.Host  = (*Host)(nil)
	_ group.Noter = (*Host)(nil)
)

// Note implements group.Noter.
func (h *Host) Note(text string) { h.Notes = append(h.Notes, text) }

// New makes a host of one replica with an empty log; it does not lead.
func New(m group.Machine) *Host {
	return &Host{
		Machine: m, Log: &Log{}, Term: 1,
		Mono: model.Mono(time.Hour), WallNow: Epoch, Trusted: true, WakeAt: model.Never,
		Cat: NewCatalog(), Answers: map[group.Ref]Answer{}, cancelled: map[group.Ref]bool{}, random: 1,
	}
}

// Lead makes the replica the leader of a new term, after it caught up.
func (h *Host) Lead() {
	h.CatchUp()
	h.Term++
	h.leading = true
	h.Machine.LeaderStart(h)
}

// StepDown ends leadership: what was asked of ReadIndex is answered NOT_LEADER,
// as a shard does. Proposals stay pending: Commit or Lose them.
func (h *Host) StepDown() {
	h.leading = false
	for _, ref := range h.Indexes {
		h.answer(ref, nil, h.NotLeader())
	}
	h.Indexes = nil
	h.Machine.LeaderStop(h)
}

// Pending is the number of proposals neither committed nor lost.
func (h *Host) Pending() int { return len(h.pending) }

// Commit commits and applies the n oldest proposals; n < 0: all, and what they cause.
func (h *Host) Commit(n int) {
	for ; n != 0 && len(h.pending) > 0; n-- {
		p := h.pending[0]
		h.pending = h.pending[1:]
		if xxhash.Sum64(p.data) != p.hash {
			panic("grouptest: a proposal was changed after Propose")
		}
		h.Log.Entries = append(h.Log.Entries,
			group.Entry{Index: uint64(len(h.Log.Entries) + 1), Term: h.Term, Data: p.data})
		h.CatchUp()
	}
}

// Lose forgets the pending proposals: another leader's log overwrites them.
func (h *Host) Lose() { h.pending = nil }

// CatchUp applies what the log has committed and this replica has not applied.
func (h *Host) CatchUp() {
	for h.ApplyNext() {
	}
}

// ApplyNext applies the next entry of the log; false: there is none.
func (h *Host) ApplyNext() bool {
	if h.Applied == len(h.Log.Entries) {
		return false
	}
	e := h.Log.Entries[h.Applied]
	h.Applied++
	before := xxhash.Sum64(e.Data)
	h.Machine.Apply(h, e)
	if xxhash.Sum64(e.Data) != before {
		panic("grouptest: Apply changed its entry")
	}
	return true
}

// FinishIndexes ends every ReadIndex asked for so far.
func (h *Host) FinishIndexes() {
	refs := h.Indexes
	h.Indexes = nil
	for _, ref := range refs {
		if !h.cancelled[ref] {
			h.Machine.ReadIndexDone(h, ref)
		}
	}
}

// FinishReads serves every read asked for so far from the store.
func (h *Host) FinishReads() {
	reads := h.Reads
	h.Reads = nil
	for _, r := range reads {
		h.Machine.ReadDone(h, r.ID, h.Store.Serve(r), nil)
	}
}

// Settle commits, ends ReadIndex calls and serves reads until nothing is left.
func (h *Host) Settle() {
	for range 1000 {
		if len(h.pending) == 0 && len(h.Indexes) == 0 && len(h.Reads) == 0 {
			return
		}
		h.Commit(-1)
		h.FinishIndexes()
		h.FinishReads()
	}
	panic("grouptest: the machine never settles")
}

// Call hands a request over and returns its Ref.
func (h *Host) Call(req call.Request) group.Ref {
	h.lastRef++
	h.Machine.Handle(h, h.lastRef, req)
	return h.lastRef
}

// Cancel gives a request up.
func (h *Host) Cancel(ref group.Ref) {
	h.cancelled[ref] = true
	h.Machine.Cancel(h, ref)
}

// Do calls, settles, and returns the answer; it panics when there is none.
func (h *Host) Do(req call.Request) (call.Response, *model.Error) {
	ref := h.Call(req)
	if _, ok := h.Answers[ref]; !ok {
		h.Settle()
	}
	if _, ok := h.Answers[ref]; !ok {
		h.Advance(moment) // for what waits for something before it
	}
	a, ok := h.Answers[ref]
	if !ok {
		panic(fmt.Sprintf("grouptest: %T has no answer", req))
	}
	return a.Resp, a.Err
}

// Advance moves both clocks by d and ticks the machine at each moment it asked for.
func (h *Host) Advance(d time.Duration) {
	end := h.Mono.Add(d)
	for ticks := 0; h.WakeAt <= end; ticks++ {
		if ticks > 100_000 {
			panic("grouptest: the machine asks for a tick without end")
		}
		h.moveTo(max(h.WakeAt, h.Mono))
		h.WakeAt = model.Never
		h.Machine.Tick(h)
	}
	h.moveTo(end)
}

func (h *Host) moveTo(at model.Mono) {
	h.WallNow += model.Wall(at - h.Mono)
	h.Mono = at
}

// Now implements group.Host.
func (h *Host) Now() model.Mono { return h.Mono }

// Wall implements group.Host.
func (h *Host) Wall() model.Wall { return h.WallNow }

// WallTrusted implements group.Host.
func (h *Host) WallTrusted() bool { return h.Trusted }

// Propose implements group.Host.
func (h *Host) Propose(data []byte) bool {
	if h.DropProposals || !h.leading {
		return false
	}
	h.Proposals++
	h.pending = append(h.pending, proposal{data, xxhash.Sum64(data)})
	return true
}

// Reply implements group.Host. A second reply panics: it hides a mistake.
func (h *Host) Reply(ref group.Ref, resp call.Response, err *model.Error) {
	if resp == nil && err == nil {
		panic(fmt.Sprintf("grouptest: request %d is answered with nothing", ref))
	}
	if _, ok := h.Answers[ref]; ok {
		// After StepDown the shard has answered what waited for ReadIndex.
		if h.leading {
			panic(fmt.Sprintf("grouptest: request %d is answered twice", ref))
		}
		return
	}
	h.answer(ref, resp, err)
}

func (h *Host) answer(ref group.Ref, resp call.Response, err *model.Error) {
	if err != nil {
		resp = nil
	}
	if !h.cancelled[ref] {
		h.Answers[ref] = Answer{resp, err}
	}
}

// ReadIndex implements group.Host.
func (h *Host) ReadIndex(ref group.Ref) {
	if !h.leading {
		h.answer(ref, nil, h.NotLeader())
		return
	}
	h.Indexes = append(h.Indexes, ref)
}

// Wake implements group.Host.
func (h *Host) Wake(at model.Mono) { h.WakeAt = at }

// Rand implements group.Host: splitmix64 from a fixed seed.
func (h *Host) Rand() uint64 {
	h.random += 0x9e3779b97f4a7c15
	z := h.random
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Catalog implements group.Host.
func (h *Host) Catalog() model.Catalog { return h.Cat }

// NotLeader implements group.Host.
func (h *Host) NotLeader() *model.Error {
	return &model.Error{Code: model.FailedPrecondition, Reason: model.ReasonNotLeader,
		Message: "this node does not lead the group", Leader: h.Leader}
}

// Leading implements group.Host.
func (h *Host) Leading() bool { return h.leading }

// SegmentAppend implements group.Host.
func (h *Host) SegmentAppend(b []byte) { h.Store.append(b) }

// SegmentRoll implements group.Host.
func (h *Host) SegmentRoll(at model.Offset) { h.Store.roll(at) }

// SegmentDrop implements group.Host.
func (h *Host) SegmentDrop(before model.Offset) { h.Store.drop(before) }

// Read implements group.Host.
func (h *Host) Read(id uint64, offset model.Offset, maxBytes int) {
	h.Reads = append(h.Reads, StoreRead{ID: id, Offset: offset, MaxBytes: maxBytes})
}

// ReadAt implements group.Host.
func (h *Host) ReadAt(id uint64, at model.Wall) {
	h.Reads = append(h.Reads, StoreRead{ID: id, ByTime: true, Time: at})
}
