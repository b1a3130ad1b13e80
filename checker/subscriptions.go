package checker

import (
	"cmp"
	"slices"
	"sort"

	"github.com/tapedeck/tapedeck/core/model"
)

// sub is one subscription as its members saw it.
type sub struct {
	name    string
	create  *Create // nil: not in the history
	deleted bool    // or may have been
	topic   string
	index   map[model.Partition]*subPart
	parts   []*subPart // in order of first mention
	owners  map[ownerKey]owner
	members membersOf
	// wild is the first call of a seek of unknown outcome to all partitions.
	wild Moment
}

type ownerKey struct {
	partition  model.Partition
	generation model.Generation
}

type owner struct {
	member int32
	op     int32
}

// subPart is one partition of one subscription.
//
// Seeks cut its life into epochs: epoch k lies after the k-th seek by
// generation. Since one counter is raised by every seek, the generation of a
// pull or an ack says which epoch it fell in, whatever the clocks say.
type subPart struct {
	number  model.Partition
	log     *part
	seeks   []seekAt   // by generation once judged
	events  []subEvent // in order of calls
	wild    Moment     // from then on a seek of unknown outcome may have moved the cursor
	refused []int32    // acks that were refused, in order of calls
	nacked  bool       // deliveries may have gone back for a nack
	given   map[pullKey]model.Offset

	gifts   []gift // of a subscription judged message by message, in order of calls
	singles []single
	nacks   []nackAt
}

type seekAt struct {
	generation model.Generation
	cursor     model.Offset
	call, by   Moment
	op         int32
	earliest   earliestAfter
}

// earliestAfter is the earliest return among this seek and those of higher generations.
type earliestAfter struct {
	by Moment
	op int32
}

type pullKey struct {
	member   int32
	sequence uint64
}

type eventKind uint8

const (
	eventPull     eventKind = 0 // [low, high) came
	eventAck      eventKind = 1 // low = cursor after it
	eventDescribe eventKind = 2 // low = cursor
	eventSkip     eventKind = 3 // the broker said it moved the cursor to low
)

// subEvent is what one operation says of one partition of a subscription.
type subEvent struct {
	call, by   Moment // by is Open when it is not known to have happened
	low, high  model.Offset
	generation model.Generation // 0: not told
	op         int32
	member     int32
	kind       eventKind
	repeat     bool // a pull that repeats an answer given before
	atCursor   bool // a pull that starts at the cursor
	blind      bool
}

func (j *judge) sub(name string) *sub {
	s := j.subIndex[name]
	if s == nil {
		s = &sub{name: name, topic: topicOf(name), index: map[model.Partition]*subPart{},
			owners: map[ownerKey]owner{}, wild: Open}
		j.subIndex[name] = s
		j.subs = append(j.subs, s)
	}
	return s
}

// topicOf cuts the topic off "topic/name".
func topicOf(ref string) string {
	for i := range len(ref) {
		if ref[i] == '/' {
			return ref[:i]
		}
	}
	return ref
}

func (j *judge) subPart(name string, number model.Partition) *subPart {
	s := j.sub(name)
	sp := s.index[number]
	if sp == nil {
		sp = &subPart{number: number, log: j.part(s.topic, number), wild: Open, given: map[pullKey]model.Offset{}}
		s.index[number] = sp
		s.parts = append(s.parts, sp)
	}
	return sp
}

// readPull turns an answer into runs of consecutive offsets per partition.
func (j *judge) readPull(i int32, op *Op) {
	p := op.Pull
	s, member := j.sub(p.Subscription), j.intern(string(p.Member))
	for _, r := range p.Skipped {
		sp := j.subPart(p.Subscription, r.Partition)
		sp.events = append(sp.events, subEvent{call: op.Call, by: op.Return, low: r.To, high: r.To,
			generation: p.Generation, op: i, member: member, kind: eventSkip})
	}
	if s.singly() {
		j.readGifts(s, i, op)
	}
	first := 0
	for n := range p.Messages {
		m := &p.Messages[n]
		j.read(j.part(s.topic, m.Partition), i, op, m)
		j.judgeWanted(s, i, p, m)
		if n+1 < len(p.Messages) && p.Messages[n+1].Partition == m.Partition && p.Messages[n+1].Offset == m.Offset+1 {
			continue
		}
		j.readRun(s, i, op, member, p.Messages[first], m.Offset+1)
		first = n + 1
	}
}

// readRun takes in that a pull gave [first.Offset, end) of first's partition.
func (j *judge) readRun(s *sub, i int32, op *Op, member int32, first Message, end model.Offset) {
	p := op.Pull
	sp := j.subPart(p.Subscription, first.Partition)
	sp.log.watermark(i, op, end, false)
	e := subEvent{call: op.Call, by: op.Return, low: first.Offset, high: end, generation: p.Generation, op: i,
		member: member, kind: eventPull}
	if n := len(sp.events); n > 0 && sp.events[n-1].op == i && sp.events[n-1].kind == eventPull {
		if j.checked(NonMonotonic); e.low < sp.events[n-1].high && !s.singly() {
			j.fail(NonMonotonic, []int32{i}, "%s: one pull of %s gave offset %d after %d",
				sp.log.name, p.Member, e.low, sp.events[n-1].high-1)
		}
		e.repeat = sp.events[n-1].repeat
	} else if p.Sequence != 0 {
		low, there := sp.given[pullKey{member, p.Sequence}]
		e.repeat = there && low == e.low
		sp.given[pullKey{member, p.Sequence}] = e.low
	} else {
		e.atCursor = true
	}
	sp.events = append(sp.events, e)
	if s.create != nil && s.create.Shared {
		return
	}
	key := ownerKey{first.Partition, p.Generation}
	held, there := s.owners[key]
	if !there {
		s.owners[key] = owner{member, i}
	}
	if j.checked(TwoOwners); there && held.member != member {
		j.fail(TwoOwners, []int32{held.op, i}, "%s of %s: two members were given it in generation %d",
			sp.log.name, s.name, p.Generation)
	}
}

func (j *judge) readAck(i int32, op *Op) {
	a := op.Ack
	sp := j.subPart(a.Subscription, a.Partition)
	e := subEvent{call: op.Call, by: op.by(), low: a.Next, high: a.Next, generation: a.Generation, op: i,
		member: j.intern(string(a.Member)), kind: eventAck, blind: a.Blind}
	if op.done() {
		e.low = a.Cursor // what it is; high is what was asked for
	}
	sp.events = append(sp.events, e)
}

func (j *judge) readDescribe(i int32, op *Op) {
	at := map[model.Partition]model.Offset{}
	for _, st := range op.Describe.Partitions {
		sp := j.subPart(op.Describe.Subscription, st.Partition)
		at[st.Partition] = st.Cursor
		if op.Describe.Snapshot == "" {
			sp.log.watermark(i, op, st.HighWatermark, true)
		}
		sp.events = append(sp.events, subEvent{call: op.Call, by: op.Return, low: st.Cursor, high: st.Cursor,
			generation: st.Generation, op: i, kind: eventDescribe})
	}
	if op.Describe.Snapshot != "" {
		j.snapshots[snapshotKey{op.Describe.Subscription, op.Describe.Snapshot}] = at
	}
}

func (j *judge) readSeek(i int32, op *Op) {
	s := j.sub(op.Seek.Subscription)
	if op.done() {
		for _, c := range op.Seek.Cursors {
			sp := j.subPart(s.name, c.Partition)
			sp.seeks = append(sp.seeks, seekAt{generation: op.Seek.Generation, cursor: c.Offset,
				call: op.Call, by: op.Return, op: i})
		}
		return
	}
	for _, number := range op.Seek.Partitions {
		sp := j.subPart(s.name, number)
		sp.wild = min(sp.wild, op.Call)
	}
	if len(op.Seek.Partitions) == 0 {
		s.wild = min(s.wild, op.Call)
	}
}

func (j *judge) judgeSubscription(s *sub) {
	cursors := j.finalCursors(s)
	if s.singly() {
		j.judgeSingly(s, cursors)
		return
	}
	for _, sp := range s.parts {
		j.judgeAcks(s, sp)
		epochs := sp.split()
		for k := range epochs {
			e := &epochs[k]
			e.base, e.known = sp.base(s, k)
			if k == len(epochs)-1 && cursors != nil && sp.wild == Open {
				e.last, e.lastTold = cursors[sp.number]
			}
			j.judgeCursor(s, sp, e)
			j.judgeDelivery(s, sp, e)
		}
		j.judgeUnseen(s, sp, &epochs[len(epochs)-1])
	}
}

func (j *judge) finalCursors(s *sub) map[model.Partition]model.Offset {
	for i := range j.final.Subscriptions {
		if f := &j.final.Subscriptions[i]; f.Subscription == s.name {
			cursors := make(map[model.Partition]model.Offset, len(f.Partitions))
			for _, c := range f.Partitions {
				cursors[c.Partition] = c.Offset
			}
			return cursors
		}
	}
	return nil
}

func (sp *subPart) sortSeeks() {
	slices.SortFunc(sp.seeks, func(a, b seekAt) int { return cmp.Compare(a.generation, b.generation) })
	earliest := earliestAfter{Open, noOp}
	for i := len(sp.seeks) - 1; i >= 0; i-- {
		if s := &sp.seeks[i]; s.by < earliest.by {
			earliest = earliestAfter{s.by, s.op}
		}
		sp.seeks[i].earliest = earliest
	}
}

// seeksUpTo counts the seeks of at most the given generation.
func (sp *subPart) seeksUpTo(g model.Generation) int {
	return sort.Search(len(sp.seeks), func(i int) bool { return sp.seeks[i].generation > g })
}

// epochOf says in which epoch an event fell; false: it cannot be told.
func (sp *subPart) epochOf(e *subEvent) (int, bool) {
	if e.generation != 0 {
		return sp.seeksUpTo(e.generation), true
	}
	before := 0
	for i := range sp.seeks {
		s := &sp.seeks[i]
		switch {
		case s.by < e.call && i == before:
			before++
		case s.by < e.call || s.call < e.by:
			return 0, false // overlaps, or generations and times disagree
		}
	}
	return before, true
}

// epoch is the time between two seeks.
type epoch struct {
	base     model.Offset // the cursor at its beginning
	known    bool         // base is
	last     model.Offset // the final cursor
	lastTold bool         // last is, and belongs to this epoch
	events   []subEvent   // in order of calls
}

// split sorts the events into epochs, leaving out those whose cursor a seek of
// unknown outcome may have moved.
func (sp *subPart) split() []epoch {
	epochs := make([]epoch, len(sp.seeks)+1)
	if len(sp.seeks) == 0 && sp.wild == Open {
		epochs[0].events = sp.events
		return epochs
	}
	for i := range sp.events {
		e := &sp.events[i]
		if e.by >= sp.wild && e.by != Open {
			if e.kind != eventAck || e.call >= sp.wild {
				continue
			}
			// Carried out before that seek, and seen by then, or after it.
			open := *e
			open.by, e = Open, &open
		}
		if k, told := sp.epochOf(e); told {
			epochs[k].events = append(epochs[k].events, *e)
		}
	}
	return epochs
}

func (sp *subPart) base(s *sub, k int) (model.Offset, bool) {
	if k > 0 {
		return sp.seeks[k-1].cursor, true
	}
	if s.create != nil && (s.create.Start == TargetEarliest || s.create.Start == "") {
		return 0, true
	}
	return 0, false
}
