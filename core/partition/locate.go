package partition

import (
	"sort"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

// locate takes a Locate: first a linearizable point, then the place.
func (m *Machine) locate(h group.Host, ref group.Ref, req *call.Locate) {
	switch {
	case m.lead == nil:
		h.Reply(ref, nil, h.NotLeader())
		return
	case req.Where.Kind > model.StartOffsets:
		h.Reply(ref, nil, model.Invalid("start", "kind %d is not a place in a partition", req.Where.Kind))
		return
	}
	r := &reader{ref: ref, led: true, locate: req}
	if m.take(h, r) {
		m.index(h, r)
	}
}

// place answers a Locate from what is in memory, or asks the segments.
func (m *Machine) place(h group.Host, r *reader) {
	offset := m.st.logStart()
	switch r.locate.Where.Kind {
	case model.StartLatest:
		offset = m.st.next
	case model.StartOffsets:
		offset = min(max(r.locate.Offset, offset), m.st.next)
	case model.StartTime:
		o, at, ok := m.placeTime(r.locate.Where.Time)
		if ok {
			m.located(h, r, o, at)
			return
		}
		m.store(r)
		h.ReadAt(r.storeID, r.locate.Where.Time)
		return
	}
	at, ok := m.timeOf(offset)
	if ok {
		m.located(h, r, offset, at)
		return
	}
	m.store(r)
	r.offset = offset
	h.Read(r.storeID, offset, 1)
}

func (m *Machine) store(r *reader) {
	m.lastRead++
	r.stage, r.storeID = stageStored, m.lastRead
	m.stored[r.storeID] = r
}

// placeTime is the first offset appended at t or later, the end if there is
// none, and its append time. Not ok: only the segments can tell.
//
// The segment list settles it at every edge: segments' spans of time follow
// each other, so the first one whose last time reaches t holds the answer, at
// its base if it begins at or after t. Within a segment recent batches settle
// it if one of them lies before t, since then none below them is at or after t.
func (m *Machine) placeTime(t model.Wall) (model.Offset, model.Wall, bool) {
	full := m.st.segments
	if m.st.active().Bytes == 0 {
		full = full[:len(full)-1]
	}
	i := sort.Search(len(full), func(i int) bool { return full[i].LastTime >= t })
	if i == len(full) {
		return m.st.next, 0, true
	}
	if full[i].FirstTime >= t {
		return full[i].Base, full[i].FirstTime, true
	}
	if j := m.hot.firstAt(t); j > 0 && j < len(m.hot.live()) {
		v := m.hot.live()[j]
		return v.Base(), v.AppendTime(), true
	}
	return 0, 0, false
}

// timeOf is the append time of the message at an offset of [logStart, next], 0
// at the end. Not ok: only the segments can tell.
func (m *Machine) timeOf(o model.Offset) (model.Wall, bool) {
	if o == m.st.next {
		return 0, true
	}
	if i := m.hot.find(o); i >= 0 {
		return m.hot.live()[i].AppendTime(), true
	}
	g := m.st.segmentOf(o)
	return g.FirstTime, o == g.Base || g.FirstTime == g.LastTime
}

// placed follows a Locate's question to the segments. If the log start moved
// past what they show, the log start is the place: what is there is later still.
func (m *Machine) placed(h group.Host, r *reader, data []byte, err *model.Error) {
	if m.lead == nil {
		m.finish(h, r, nil, h.NotLeader())
		return
	}
	byTime := r.locate.Where.Kind == model.StartTime
	var found batch.View
	for rest := data; len(rest) > 0 && found == nil; {
		v, bad := batch.ParseHeader(rest)
		if bad != nil {
			break
		}
		if byTime && v.AppendTime() >= r.locate.Where.Time || !byTime && v.Next() > r.offset {
			found = v
		}
		rest = rest[len(v):]
	}
	switch {
	case found != nil && found.Next() <= m.st.logStart(), !byTime && r.offset < m.st.logStart():
		at, _ := m.timeOf(m.st.logStart())
		m.located(h, r, m.st.logStart(), at)
	case err != nil:
		m.finish(h, r, nil, err)
	case found == nil || found.Next() > m.st.next:
		m.finish(h, r, nil, unavailable("the segments do not show this moment yet"))
	case byTime:
		m.located(h, r, found.Base(), found.AppendTime())
	default:
		m.located(h, r, r.offset, found.AppendTime())
	}
}

func (m *Machine) located(h group.Host, r *reader, o model.Offset, at model.Wall) {
	m.finish(h, r, &call.Located{
		Offset: o, HighWatermark: m.st.next, LogStart: m.st.logStart(), Bytes: m.st.bytes, OldestTime: at,
	}, nil)
}
