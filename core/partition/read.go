package partition

import (
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/choice"
	"github.com/tapedeck/tapedeck/core/filter"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
)

// Bounds of one read's answer, in bytes, and of a wait for ReadIndexDone: the
// host gives up earlier and answers itself; this only lets go of the memory.
const (
	defaultReadBytes = 1 << 20
	maxReadBytes     = 8 << 20
	indexPatience    = 10 * time.Second
)

// reader is a Read or a Locate that is under way. It is in readers, and in one
// of parked, indexing and stored, by stage.
type reader struct {
	ref    group.Ref
	led    bool // taken on as leader: ends with leadership
	locate *call.Locate

	offset     model.Offset
	maxBytes   int
	filter     *filter.Filter // nil: everything is wanted
	until      model.Mono     // end of the long-poll; 0: none
	fresh      bool           // a ReadIndex was done for the present judgement
	stage      stage
	indexUntil model.Mono
	storeID    uint64
}

type stage uint8

const (
	stageNew stage = iota
	stageParked
	stageIndexing
	stageStored
)

// read takes a Read.
func (m *Machine) read(h group.Host, ref group.Ref, req *call.Read) {
	if req.Leader && m.lead == nil {
		h.Reply(ref, nil, h.NotLeader())
		return
	}
	r := &reader{ref: ref, led: m.lead != nil, offset: req.Offset, maxBytes: int(min(req.MaxBytes, maxReadBytes))}
	if r.maxBytes == 0 {
		r.maxBytes = defaultReadBytes
	}
	if req.Wait > 0 {
		r.until = h.Now().Add(req.Wait)
	}
	if req.Filter != "" {
		var err error
		if r.filter, err = filter.Parse(req.Filter); err != nil {
			h.Reply(ref, nil, model.Invalid("filter", "%v", err))
			return
		}
	}
	if m.take(h, r) {
		m.judge(h, r)
	}
}

// take makes room for a reader, or refuses it.
func (m *Machine) take(h group.Host, r *reader) bool {
	if len(m.readers) >= m.cfg.Limits.Waiting {
		h.Reply(r.ref, nil, throttled(retrySoon, "too many readers wait for this partition"))
		return false
	}
	m.readers[r.ref] = r
	return true
}

// judge answers a read from the state as it is, or says what it waits for.
// Whatever tells where the log ends is said only after a ReadIndex: a leader
// that was deposed without noticing would tell an old end.
func (m *Machine) judge(h group.Host, r *reader) {
	switch {
	case r.offset < m.st.logStart():
		m.tooOld(h, r)
	case r.offset < m.st.next:
		m.serve(h, r)
	case m.lead == nil:
		m.finish(h, r, nil, h.NotLeader())
	case r.offset == m.st.next && r.until > h.Now():
		group.Hit(h, probe.ReadParked)
		r.stage, r.fresh = stageParked, false
		m.parked = append(m.parked, r)
		m.wake(h, r.until)
	case !r.fresh:
		m.index(h, r)
	case r.offset > m.st.next:
		m.finish(h, r, nil, m.outOfRange(model.ReasonOffsetTooNew, "offset %d is above the end; "+
			"the partition holds [%d, %d)", r.offset))
	default:
		m.finish(h, r, m.result(nil, r.offset), nil)
	}
}

func (m *Machine) index(h group.Host, r *reader) {
	r.stage, r.indexUntil = stageIndexing, h.Now().Add(indexPatience)
	m.indexing = append(m.indexing, r)
	m.wake(h, r.indexUntil)
	h.ReadIndex(r.ref)
}

// ReadIndexDone implements group.Machine.
func (m *Machine) ReadIndexDone(h group.Host, ref group.Ref) {
	r := m.readers[ref]
	if r == nil || r.stage != stageIndexing || m.lead == nil {
		return
	}
	m.unstage(r)
	r.fresh = true
	if r.locate != nil {
		m.place(h, r)
		return
	}
	m.judge(h, r)
}

// serve answers a read of [logStart, next): from memory or from the segments.
func (m *Machine) serve(h group.Host, r *reader) {
	if m.cfg.Choice.Rare(choice.ReadOneBatch) {
		r.maxBytes = 1
	}
	if i := m.hot.find(r.offset); i >= 0 && !m.cfg.Choice.Rare(choice.ReadStored) {
		run, next := m.hot.read(i, r.maxBytes)
		m.finish(h, r, m.sift(r, m.result(run, next)), nil)
		return
	}
	group.Hit(h, probe.ReadStored)
	m.lastRead++
	r.stage, r.storeID = stageStored, m.lastRead
	m.stored[r.storeID] = r
	h.Read(r.storeID, r.offset, r.maxBytes)
}

// ReadDone implements group.Machine. The log start may have moved meanwhile.
func (m *Machine) ReadDone(h group.Host, id uint64, data []byte, err *model.Error) {
	r := m.stored[id]
	if r == nil {
		return
	}
	m.unstage(r)
	if r.locate != nil {
		m.placed(h, r, data, err)
		return
	}
	if r.offset < m.st.logStart() {
		group.Hit(h, probe.ReadOvertaken)
		m.tooOld(h, r)
		return
	}
	if err != nil {
		m.finish(h, r, nil, err)
		return
	}
	run, next := clip(data, r.offset, m.st.next, r.maxBytes)
	if len(run) == 0 {
		m.finish(h, r, nil, unavailable("the segments do not show this offset yet"))
		return
	}
	m.finish(h, r, m.sift(r, m.result(run, next)), nil)
}

// clip cuts a run of stored batches to those from the one that holds the offset
// on, below the bound, as many as maxBytes allow but at least one.
func clip(run []byte, o, bound model.Offset, maxBytes int) ([]byte, model.Offset) {
	from, to, next := 0, 0, o
	for to < len(run) {
		v, err := batch.ParseHeader(run[to:])
		if err != nil || v.Next() > bound {
			break
		}
		if v.Next() <= o {
			from, to = to+len(v), to+len(v)
			continue
		}
		first := to == from
		if first && v.Base() > o || !first && (v.Base() != next || to+len(v)-from > maxBytes) {
			break
		}
		to += len(v)
		next = v.Next()
	}
	return run[from:to:to], next
}

// result is a read's answer; bounds are the leader's to tell.
func (m *Machine) result(run []byte, next model.Offset) *call.ReadResult {
	res := &call.ReadResult{Run: run, Next: next}
	if m.lead != nil {
		res.HighWatermark, res.LogStart = m.st.next, m.st.logStart()
	}
	return res
}

func (m *Machine) tooOld(h group.Host, r *reader) {
	if m.lead == nil {
		m.finish(h, r, nil, h.NotLeader())
		return
	}
	m.finish(h, r, nil, m.outOfRange(model.ReasonOffsetTooOld, "offset %d is below the log's start; "+
		"the partition holds [%d, %d)", r.offset))
}

func (m *Machine) outOfRange(reason model.Reason, format string, o model.Offset) *model.Error {
	err := model.Reasoned(model.OutOfRange, reason, 0, format, o, m.st.logStart(), m.st.next)
	err.Start, err.End = m.st.logStart(), m.st.next
	return err
}

// wakeParked judges again everyone who waited for the high watermark to move.
func (m *Machine) wakeParked(h group.Host) {
	list := m.parked
	if len(list) == 0 {
		return
	}
	m.parked = nil
	for _, r := range list {
		r.stage = stageNew
		m.judge(h, r)
	}
}

// expireReaders ends long-polls whose time is up, and lets go of readers whose
// ReadIndex the host has given up.
func (m *Machine) expireReaders(h group.Host) {
	now := h.Now()
	for _, r := range slices.Clone(m.parked) {
		if r.until <= now {
			m.unstage(r)
			m.judge(h, r)
		}
	}
	for _, r := range slices.Clone(m.indexing) {
		if r.indexUntil <= now {
			m.finish(h, r, nil, model.Reasoned(model.Unavailable, model.ReasonNoLeader, retrySoon,
				"no majority of replicas answered in time; try again"))
		}
	}
}

// finish answers a reader and forgets it.
func (m *Machine) finish(h group.Host, r *reader, resp call.Response, err *model.Error) {
	m.forget(r)
	h.Reply(r.ref, resp, err)
}

func (m *Machine) forget(r *reader) {
	m.unstage(r)
	delete(m.readers, r.ref)
}

// unstage takes a reader off the list it waits in.
func (m *Machine) unstage(r *reader) {
	switch r.stage {
	case stageParked:
		m.parked = remove(m.parked, r)
	case stageIndexing:
		m.indexing = remove(m.indexing, r)
	case stageStored:
		delete(m.stored, r.storeID)
	}
	r.stage = stageNew
}

func remove(list []*reader, r *reader) []*reader {
	if i := slices.Index(list, r); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}
