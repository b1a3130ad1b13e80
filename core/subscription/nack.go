package subscription

import (
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

// maxDelay bounds the delay of a nack.
const maxDelay = time.Hour

// serveNack judges each partition as an ack's. What is acked meanwhile, or came
// back already, needs nothing; what is not known to be delivered is judged by the log's end.
func (m *Machine) serveNack(h group.Host, w *wait, st *subscription, ls *leadSubscription, req *call.NackCursors) {
	switch {
	case len(req.Offsets) == 0:
		m.finish(h, w, nil, model.Invalid("offsets", "names no message to give back"))
		return
	case req.Delay < 0 || req.Delay > maxDelay:
		m.finish(h, w, nil, model.Invalid("delay", "is %v; at most %v is allowed", req.Delay, maxDelay))
		return
	}
	if st.shared() {
		m.serveReturn(h, w, st, ls, req)
		return
	}
	ls.renew(req.Member, h.Now())
	ends := endsOf(req.Ends)
	w.results, w.places = nil, nil
	c := &lapseCommand{id: st.id}
	acks := &call.AckCursors{Member: req.Member, Generation: req.Generation, Offsets: req.Offsets}
	for _, want := range wantsOf(st, acks) {
		result := call.AckResult{Partition: want.partition, Err: want.err}
		if result.Err == nil && want.void {
			result.Err = st.fenced(&ack{member: req.Member, generation: req.Generation}, want.partition)
		}
		if result.Err == nil {
			result.Err = ls.checkEnd(st, want, ends)
		}
		if want.err == nil {
			result.Cursor = st.partitions[want.partition].cursor
		}
		back := noEnd // what lies at or above it is back
		if want.err == nil {
			if mem := ls.at(st, want.partition); mem.delivered >= want.end() {
				back = mem.leased
			} else {
				back = mem.backFrom
			}
		}
		for _, x := range want.ahead {
			for o := x.from; o < min(x.to, back) && result.Err == nil; o++ {
				w.places = append(w.places, len(w.results))
				c.lapses = append(c.lapses, st.partitions[want.partition].lapse(want.partition, o))
			}
		}
		w.results = append(w.results, result)
	}
	if len(c.lapses) == 0 {
		m.finish(h, w, &call.Acked{Results: w.results}, nil)
		return
	}
	m.hold(w)
	m.proposeFor(h, c, w)
}

// serveExtend sets the deadlines of what is out, in memory: a failover starts
// them anew anyway. What an earlier leader gave has none here yet.
func (m *Machine) serveExtend(h group.Host, w *wait, st *subscription, ls *leadSubscription, req *call.ExtendLeases) {
	if req.Extension != 0 && (req.Extension < minAckDeadline || req.Extension > maxAckDeadline) {
		m.finish(h, w, nil, model.Invalid("extension", "is %v; use %v to %v", req.Extension, minAckDeadline, maxAckDeadline))
		return
	}
	if st.member(req.Member) == nil || ls.leavingNow(req.Member) {
		m.finish(h, w, nil, st.sessionOver(req.Member))
		return
	}
	ls.renew(req.Member, h.Now())
	t := m.terms(h, st.id)
	if req.Extension != 0 {
		t.ack = req.Extension
	}
	if st.shared() {
		m.serveProlong(h, w, st, req, h.Now().Add(t.ack))
		return
	}
	resp := &call.Acked{}
	acks := &call.AckCursors{Member: req.Member, Generation: req.Generation, Offsets: req.Offsets}
	for _, want := range wantsOf(st, acks) {
		result := call.AckResult{Partition: want.partition, Err: want.err}
		if result.Err == nil {
			result.Cursor = st.partitions[want.partition].cursor
			result.Err = ls.extend(st, want, req, h.Now().Add(t.ack))
		}
		resp.Results = append(resp.Results, result)
	}
	m.finish(h, w, resp, nil)
	m.noteDeadline(h, st.id)
}

func (ls *leadSubscription) extend(st *subscription, w want, req *call.ExtendLeases, deadline model.Mono) *model.Error {
	if w.void {
		return st.fenced(&ack{member: req.Member, generation: req.Generation}, w.partition)
	}
	mem, last := ls.at(st, w.partition), w.end()-1
	if last >= mem.leased && last < mem.delivered && !st.partitions[w.partition].isAcked(last) {
		err := st.fencedAt(req.Generation, w.partition)
		err.Message = "the lease has ended, and the message comes again; drop it"
		return err
	}
	from := model.Offset(0)
	for i := range mem.leases {
		if from <= last {
			mem.leases[i].deadline = deadline
		}
		from = mem.leases[i].to
	}
	return nil
}
