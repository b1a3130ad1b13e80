package subscription

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

// serveGrant parks until the caller is a member and the assignment under way,
// if it may bring partitions to one who has none, is decided.
func (m *Machine) serveGrant(h group.Host, w *wait, st *subscription, ls *leadSubscription, req *call.Grant) {
	if req.Member == "" {
		named := *req
		named.Member = newMemberID(h, st)
		req, w.req = &named, &named // its own from now on, however often it is served again
	}
	if err := model.ValidateName("member", string(req.Member)); err != nil {
		m.finish(h, w, nil, err)
		return
	}
	mb := st.member(req.Member)
	if mb == nil || mb.static != req.Static {
		if err := m.wantJoin(st, ls, mb, req); err != nil {
			m.finish(h, w, nil, err)
			return
		}
		m.park(w)
		return
	}
	if ls.leavingNow(req.Member) {
		m.park(w)
		return
	}
	ls.renew(req.Member, h.Now())
	if st.shared() {
		resp, err := m.offer(h, st, ls, req)
		m.finish(h, w, resp, err)
		return
	}
	if len(ls.ownedBy(st, req.Member)) == 0 && ls.busy == kindAssign {
		m.park(w)
		return
	}
	t := m.terms(h, st.id)
	resp, err := ls.grant(st, req, h.Now(), &t)
	m.finish(h, w, resp, err)
}

func newMemberID(h group.Host, st *subscription) model.MemberID {
	for {
		id := model.MemberID(fmt.Sprintf("m-%016x", h.Rand()))
		if st.member(id) == nil {
			return id
		}
	}
}

// wantJoin puts a member on the list of those to join, or to change.
func (m *Machine) wantJoin(st *subscription, ls *leadSubscription, mb *member, req *call.Grant) *model.Error {
	i := slices.IndexFunc(ls.joins, func(j joining) bool { return j.member == req.Member })
	if i >= 0 {
		ls.joins[i].static = req.Static
		return nil
	}
	if mb == nil && len(st.members)+len(ls.joins) >= m.config.MaxMembers {
		return model.Reasoned(model.ResourceExhausted, model.ReasonThrottled, fullRetry,
			"subscription %s has %d members, its limit; let one leave first", st.ref, m.config.MaxMembers)
	}
	ls.joins = append(ls.joins, joining{req.Member, req.Static})
	return nil
}

// grant says what a member may read now.
func (ls *leadSubscription) grant(
	st *subscription, req *call.Grant, now model.Mono, t *terms,
) (*call.Granted, *model.Error) {
	s := ls.sessions[req.Member]
	replay, err := ls.turnRun(st, s, req)
	if err != nil {
		return nil, err
	}
	owned := ls.ownedBy(st, req.Member)
	ls.confirmSkips(st, owned, req.PullSequence)
	resp := &call.Granted{Member: req.Member, Generation: st.generation, Replay: replay,
		Skipped: ls.skips(st, owned)}
	if replay {
		resp.Ranges = hulls(s.run.replay(st, req.Member))
		for _, r := range resp.Ranges {
			resp.Acked, _ = st.partitions[r.Partition].tell(resp.Acked, r, math.MaxInt)
		}
		return resp, nil
	}
	room := ls.room(st, req.Member, t)
	first, _ := slices.BinarySearch(owned, s.next)
	for i := range owned {
		p := owned[(first+i)%len(owned)]
		mem := ls.at(st, p)
		if mem.revoking {
			continue
		}
		from := st.partitions[p].cursor
		if req.PullSequence != 0 {
			from = max(from, mem.position)
		}
		r := call.Range{Partition: p, From: st.partitions[p].acked.free(from), Attempt: 1}
		if to := mem.bound(&st.partitions[p], r.From, room, now, t); to <= r.From {
			continue
		} else if uint64(to-r.From) < uint64(cmp.Or(req.MaxMessages, manyMessages)) {
			r.To = to // else it is far: the delivery sees to it
		}
		resp.Acked, r.To = st.partitions[p].tell(resp.Acked, r, maxTold)
		resp.Ranges = append(resp.Ranges, r)
	}
	if len(resp.Ranges) > 0 {
		s.next = resp.Ranges[0].Partition + 1
	}
	return resp, nil
}

// manyMessages is what a pull brings at most that names no number.
const manyMessages = 1000

// maxTold bounds the acked ranges told of one partition: a grant ends before the next.
const maxTold = 256

// tell appends what is acked of a range, at most n ranges, and says where the
// range has to end then.
func (p *partition) tell(to []call.Range, r call.Range, n int) ([]call.Range, model.Offset) {
	for i := p.acked.at(r.From); i < len(p.acked) && (r.To == 0 || p.acked[i].from < r.To); i++ {
		if n--; n < 0 {
			return to, p.acked[i].from
		}
		to = append(to, call.Range{Partition: r.Partition, From: p.acked[i].from, To: p.acked[i].to})
	}
	return to, r.To
}

// hulls joins the ranges of each partition, which follow each other.
func hulls(ranges []call.Range) (out []call.Range) {
	for _, r := range ranges {
		if n := len(out); n > 0 && out[n-1].Partition == r.Partition {
			out[n-1].To = r.To
			continue
		}
		out = append(out, r)
	}
	return out
}

// turnRun moves a member's run on to the sequence asked for: the open pull's
// again (true: its answer is recorded and comes again), or the next one, which
// confirms the open one. 1 begins anew, and so does any number when no run is
// known, as after a failover: from the cursors.
func (ls *leadSubscription) turnRun(st *subscription, s *session, req *call.Grant) (replay bool, err *model.Error) {
	sequence, r := req.PullSequence, &s.run
	switch {
	case sequence == 0:
		return false, nil
	case r.sequence == sequence:
		return r.recorded, nil
	case r.sequence == 0 || sequence == 1:
		for _, p := range ls.ownedBy(st, req.Member) {
			ls.at(st, p).position = 0
		}
	case sequence == r.sequence+1:
		for _, rec := range r.ranges {
			if rec.valid(st, req.Member) {
				mem := ls.at(st, rec.Partition)
				mem.position = max(mem.position, rec.To)
			}
		}
	default:
		return false, model.Invalid("pull_sequence",
			"is %d; expected %d (the last one, again), %d (the next) or 1 (begin anew at the cursor)",
			sequence, r.sequence, r.sequence+1)
	}
	*r = run{sequence: sequence}
	return false, nil
}

// valid says whether the member still owns the partition, and no seek moved it since.
func (r *recordedRange) valid(st *subscription, m model.MemberID) bool {
	part := &st.partitions[r.Partition]
	return part.owner == m && part.fence == r.fence
}

// replay is what is left of the recorded answer: without partitions lost or
// moved since, and without what is acked.
func (r *run) replay(st *subscription, m model.MemberID) (out []call.Range) {
	for _, rec := range r.ranges {
		if rec.valid(st, m) {
			out = append(out, st.partitions[rec.Partition].open(rec.Range)...)
		}
	}
	return out
}

// open are the parts of a range that are not acked.
func (p *partition) open(r call.Range) (out []call.Range) {
	for _, x := range p.acked.holes(max(r.From, p.cursor), r.To) {
		r.From, r.To = x.from, x.to
		out = append(out, r)
	}
	return out
}

// skips lists what the owner of these partitions is still to be told.
func (ls *leadSubscription) skips(st *subscription, owned []model.Partition) (out []call.Range) {
	for _, p := range owned {
		if mem := ls.at(st, p); mem.skipped {
			out = append(out, mem.skip)
		}
	}
	return out
}

// confirmSkips forgets those told in an answer that, as this pull shows, arrived.
func (ls *leadSubscription) confirmSkips(st *subscription, owned []model.Partition, sequence uint64) {
	for _, p := range owned {
		mem := ls.at(st, p)
		if mem.skipped && mem.told && (sequence == 0 || sequence != mem.toldIn) {
			mem.skipped, mem.told, mem.skip = false, false, call.Range{}
		}
	}
}
