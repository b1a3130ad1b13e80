package gateway

import (
	"cmp"
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/choice"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
)

// pullSlice bounds one round of a waiting pull: after it the coordinator is
// asked again, which renews the member's session and tells of new partitions.
const pullSlice = time.Second

// maxPullReads bounds the reads of one partition in one round: each goes on
// beyond what is acked ahead of the cursor.
const maxPullReads = 16

// maxPullPartitions bounds the reads of one round; grants rotate.
const maxPullPartitions = 64

// pulling is a pull under way: rounds of grant, read, deliver, until there is
// something to hand out or the wait is over.
type pulling struct {
	g        *Gateway
	rq       *request
	c        *call.Pull
	sub      *model.Subscription
	topic    *model.Topic
	until    model.Mono // end of the client's wait
	began    model.Mono // this round did
	granted  *call.Granted
	reads    []*ask
	left     int
	polling  bool // the reads under way wait for new messages
	ranges   []call.PulledRange
	skips    []call.Range
	filtered []call.Range // what the filter does not want of what was read
	skipped  []call.Range
	messages uint32 // still wanted
	bytes    uint32
}

func (g *Gateway) pull(rq *request, c *call.Pull) {
	if c.MaxMessages == 0 {
		c.MaxMessages = defaultMessages
	}
	c.MaxBytes = bytesOr(c.MaxBytes)
	if c.Member != "" {
		if err := model.ValidateName("member", string(c.Member)); err != nil {
			g.reply(rq, nil, err)
			return
		}
	}
	g.subscription(rq, c.Subscription, named{}, func(s *model.Subscription, t *model.Topic) {
		p := &pulling{g: g, rq: rq, c: c, sub: s, topic: t}
		p.until = g.h.Now().Add(g.readWait(rq, c.Wait))
		p.round()
	})
}

// round asks for a grant. A client without an id takes the one it is given.
func (p *pulling) round() {
	// The topic may have got partitions, or the subscription be gone, since the last round.
	if s, ok := p.g.h.Catalog().SubscriptionByID(p.sub.ID); ok {
		if t, ok := p.g.h.Catalog().TopicByID(s.Topic); ok {
			p.sub, p.topic = s, t
		}
	}
	p.began = p.g.h.Now()
	p.ranges, p.skips, p.filtered, p.reads, p.polling = nil, nil, nil, nil, false
	p.messages, p.bytes = p.c.MaxMessages, p.c.MaxBytes
	req := &call.Grant{Target: p.g.targetOf(p.sub), Member: p.c.Member, Static: p.c.Static,
		PullSequence: p.c.PullSequence, MaxMessages: p.c.MaxMessages}
	p.g.ask(p.rq, p.sub.Coordinator, req, 0, func(resp call.Response, err *model.Error) {
		if err != nil {
			p.g.reply(p.rq, nil, err)
			return
		}
		p.granted = resp.(*call.Granted)
		if p.granted.Room > 0 {
			p.messages = min(p.messages, p.granted.Room)
		}
		p.c.Member = p.granted.Member
		if p.granted.Replay {
			p.g.cfg.Probe.Hit(probe.PullReplayed)
		}
		p.skipped = p.granted.Skipped
		if !p.granted.Replay && p.g.cfg.Choice.Rare(choice.PullOne) {
			p.messages = 1
		}
		p.granted.Ranges = p.granted.Ranges[:min(len(p.granted.Ranges), maxPullPartitions)]
		p.read(len(p.granted.Ranges) == 1 && !p.granted.Replay)
	})
}

// slice is how long this round may still wait.
func (p *pulling) slice() time.Duration {
	timeout := p.sub.Settings.SessionTimeout
	if timeout == 0 {
		timeout = model.DefaultSessionTimeout
	}
	return max(0, min(p.until.Sub(p.g.h.Now()), pullSlice, timeout/3))
}

// read reads every granted range. With wait the reads are long-polls, of which
// the first that brings something ends the round.
func (p *pulling) read(wait bool) {
	p.polling = wait
	// What this node's catalog does not know yet the next round may.
	known := slices.DeleteFunc(slices.Clone(p.granted.Ranges), func(r call.Range) bool {
		return int(r.Partition) >= len(p.topic.Partitions)
	})
	if p.left = len(known); p.left == 0 {
		p.pause(ownsNothing)
		return
	}
	patience := time.Duration(0)
	if wait {
		patience = p.slice()
	}
	p.reads = p.reads[:0]
	for _, r := range known {
		req := p.readFrom(r.From)
		req.Wait = patience
		p.readOn(&walk{left: r, acked: p.acked(r.Partition)}, req, patience)
	}
}

// walk is one partition's part of a round: what is granted, from where it is
// still to be read, and what of it is acked.
type walk struct {
	left  call.Range
	acked []call.Range
	reads int
}

func (p *pulling) readOn(w *walk, req *call.Read, patience time.Duration) {
	w.reads++
	group := p.topic.Partitions[w.left.Partition]
	p.reads = append(p.reads, p.g.ask(p.rq, group, req, patience, func(resp call.Response, err *model.Error) {
		p.got(w, resp, err)
	}))
}

// acked is what of a granted range is not to be handed out.
func (p *pulling) acked(n model.Partition) []call.Range {
	first := slices.IndexFunc(p.granted.Acked, func(r call.Range) bool { return r.Partition == n })
	if first < 0 {
		return nil
	}
	last := first
	for last < len(p.granted.Acked) && p.granted.Acked[last].Partition == n {
		last++
	}
	return p.granted.Acked[first:last]
}

// readFrom asks for what is wanted. What was given before was wanted then.
func (p *pulling) readFrom(o model.Offset) *call.Read {
	req := &call.Read{Offset: o, MaxBytes: p.share(len(p.granted.Ranges))}
	if !p.granted.Replay {
		req.Filter = p.sub.Settings.Filter
	}
	return req
}

// share splits the byte limit, so that one pull does not read many times what it may hand out.
func (p *pulling) share(n int) uint32 {
	return max(p.c.MaxBytes/uint32(n), 1)
}

const (
	ownsNothing = 100 * time.Millisecond // until the assignment is looked at again
	oneRound    = 20 * time.Millisecond  // at least between two rounds that brought nothing
)

// pause ends a round that had nothing to read, for a moment.
func (p *pulling) pause(d time.Duration) {
	if p.g.h.Now() >= p.until {
		p.over()
		return
	}
	// The catalog version asked for does not come: the waiter is a timer.
	at := p.g.h.Now().Add(min(p.slice(), d))
	p.g.waiters = append(p.g.waiters, waiter{p.rq, 1<<64 - 1, at, func(*model.Error) { p.round() }})
}

// again begins the next round, but not at once: answers that come at once and
// bring nothing would keep the node busy with one pull until its wait is over.
func (p *pulling) again() {
	if p.g.h.Now() < p.began.Add(oneRound) {
		p.pause(oneRound)
		return
	}
	p.round()
}

// over answers a pull whose wait is over and that brought nothing.
func (p *pulling) over() {
	if p.granted.Replay && len(p.granted.Ranges) > 0 {
		// An empty answer would confirm what never arrived.
		p.g.reply(p.rq, nil, model.Errorf(model.Unavailable,
			"what this pull gave before cannot be read at the moment; pull again with the same pull_sequence"))
		return
	}
	p.empty()
}

func (p *pulling) empty() {
	p.g.reply(p.rq, &call.PullResult{Member: p.granted.Member, Generation: p.granted.Generation, Skipped: p.skipped}, nil)
}

// got takes one read's outcome.
func (p *pulling) got(w *walk, resp call.Response, err *model.Error) {
	if p.left <= 0 {
		return // the round is over
	}
	switch {
	case err == nil:
		if at, more := p.take(w, resp.(*call.ReadResult)); more && w.reads < maxPullReads {
			w.left.From = at
			p.readOn(w, p.readFrom(at), 0)
			return
		}
	case err.Reason == model.ReasonOffsetTooOld && err.Start > w.left.From && w.reads == 1:
		p.g.cfg.Probe.Hit(probe.PullSkips)
		p.skips = append(p.skips, call.Range{Partition: w.left.Partition, From: w.left.From, To: err.Start})
	default:
		// No leader, or a new one that does not know the end yet: the other
		// partitions go on, this one comes again with the next round.
	}
	p.left--
	if p.polling && p.found() {
		p.left = 0
		for _, a := range p.reads {
			p.g.withdraw(a)
		}
	}
	if p.left == 0 {
		p.endRound()
	}
}

// found says whether the round has something for the coordinator.
func (p *pulling) found() bool { return len(p.ranges) > 0 || len(p.skips) > 0 || len(p.filtered) > 0 }

func (p *pulling) endRound() {
	switch {
	case p.found():
		p.deliver()
	case p.g.h.Now() >= p.until:
		p.over()
	case p.polling || p.granted.Replay:
		p.again()
	default:
		p.read(true)
	}
}

// take cuts what was read to the grant and to what is still wanted, leaving out
// what is acked or filtered. more says that the walk goes on at an offset: it was
// stopped by acked or filtered messages, or what was given before has to be given
// again in whole.
func (p *pulling) take(w *walk, res *call.ReadResult) (at model.Offset, more bool) {
	views, err := batch.Split(res.Run)
	if err != nil || len(views) == 0 && len(res.Filtered) == 0 {
		return 0, false // a damaged answer brings nothing; the next round reads again
	}
	at = w.left.From
	whole := p.takeParts(w, views, res, &at)
	p.noteFiltered(w, res, at)
	if !whole {
		return 0, false
	}
	for _, v := range views {
		p.bytes -= min(p.bytes, uint32(len(v)))
	}
	open := w.left.To == 0 || at < w.left.To
	stopped := at > res.Next || len(res.Filtered) > 0 && at >= res.Next && at != res.HighWatermark
	return at, open && (p.granted.Replay || stopped && p.messages > 0 && p.bytes > 0)
}

// takeParts takes what lies between acked and filtered messages, and moves at on
// over all of it; false: no more is wanted.
func (p *pulling) takeParts(w *walk, views []batch.View, res *call.ReadResult, at *model.Offset) bool {
	end := res.Next
	if w.left.To != 0 {
		end = min(end, w.left.To)
	}
	out := append(w.acked[:len(w.acked):len(w.acked)], res.Filtered...)
	if len(w.acked) > 0 && len(res.Filtered) > 0 {
		slices.SortFunc(out, func(a, b call.Range) int { return cmp.Compare(a.From, b.From) })
	}
	for _, a := range append(out, call.Range{From: end, To: end}) {
		if *at < min(a.From, end) && !p.takePart(w, views, at, min(a.From, end)) {
			return false
		}
		if *at < a.From {
			break
		}
		*at = max(*at, a.To)
	}
	return true
}

// noteFiltered keeps what the walk has passed: the coordinator is to know that
// nobody wants it.
func (p *pulling) noteFiltered(w *walk, res *call.ReadResult, at model.Offset) {
	for _, f := range res.Filtered {
		f.From, f.To, f.Partition = max(f.From, w.left.From), min(f.To, at), w.left.Partition
		if f.From < f.To {
			p.filtered = append(p.filtered, f)
		}
	}
}

// takePart takes [*at, to) of what was read, as far as it is wanted, and moves at on.
func (p *pulling) takePart(w *walk, views []batch.View, at *model.Offset, to model.Offset) bool {
	limit := uint32(to - *at)
	if !p.granted.Replay {
		if p.messages == 0 || p.bytes == 0 && len(p.ranges) > 0 {
			return false
		}
		limit = min(limit, p.messages)
	}
	r := w.left
	r.From = *at
	part, end := clip(above(views, *at), *at, limit)
	if r.To = end; r.To <= r.From || len(part) == 0 {
		return false
	}
	p.messages -= min(p.messages, uint32(r.To-r.From))
	p.ranges = append(p.ranges, call.PulledRange{Range: r, Batches: part})
	*at = r.To
	return *at == to
}

// deliver has the coordinator record what is about to go out, and hands out what
// it allows: not what was taken away or moved by a seek meanwhile.
func (p *pulling) deliver() {
	req := &call.Deliver{Target: p.g.targetOf(p.sub), Member: p.granted.Member, Generation: p.granted.Generation,
		PullSequence: p.c.PullSequence, Skips: p.skips, Filtered: p.filtered}
	if p.sub.Settings.Mode == model.ModeShared {
		req.Token = p.g.h.Rand()
	}
	for _, r := range p.ranges {
		req.Ranges = append(req.Ranges, r.Range)
		if p.sub.Settings.KeyOrdered {
			req.Keys = appendKeys(req.Keys, &r)
		}
	}
	p.g.ask(p.rq, p.sub.Coordinator, req, 0, func(resp call.Response, err *model.Error) {
		if err != nil {
			p.failed(err)
			return
		}
		d := resp.(*call.Delivered)
		p.skipped = mergeRanges(p.skipped, d.Skipped)
		out := &call.PullResult{Member: p.granted.Member, Generation: d.Generation, Delivery: d.Delivery,
			Skipped: p.skipped}
		for _, r := range d.Ranges {
			// It may be less than what was read: what was acked meanwhile stays here.
			i := slices.IndexFunc(p.ranges, func(q call.PulledRange) bool {
				return q.Partition == r.Partition && q.From <= r.From && r.To <= q.To
			})
			if i < 0 {
				// Left out, the next pull would take it for received.
				p.g.reply(p.rq, nil, model.Errorf(model.Unavailable,
					"what may be delivered is not what was read; pull again with the same pull_sequence"))
				return
			}
			part, _ := clip(above(p.ranges[i].Batches, r.From), r.From, uint32(r.To-r.From))
			out.Ranges = append(out.Ranges, call.PulledRange{Range: r, Batches: part})
		}
		if len(out.Ranges) == 0 && p.g.h.Now() < p.until {
			p.again()
			return
		}
		p.g.reply(p.rq, out, nil)
	})
}

// appendKeys appends what the batches say of each message's key.
func appendKeys(keys []uint32, r *call.PulledRange) []uint32 {
	for _, v := range r.Batches {
		for o := max(v.Base(), r.From); o < min(v.Next(), r.To); o++ {
			key, _ := v.Entry(int(o - v.Base()))
			keys = append(keys, key)
		}
	}
	return keys
}

// above leaves out batches that end at or below an offset.
func above(vs []batch.View, from model.Offset) []batch.View {
	for len(vs) > 0 && vs[0].Next() <= from {
		vs = vs[1:]
	}
	return vs
}

// failed starts over when the member's place changed between grant and delivery.
func (p *pulling) failed(err *model.Error) {
	if err.Reason == model.ReasonFenced && p.g.h.Now() < p.until {
		p.g.cfg.Probe.Hit(probe.PullOvertaken)
		p.again()
		return
	}
	p.g.reply(p.rq, nil, err)
}

func mergeRanges(a, b []call.Range) []call.Range {
	for _, r := range b {
		if !slices.Contains(a, r) {
			a = append(a, r)
		}
	}
	return a
}
