package checker

import (
	"fmt"
	"slices"

	"github.com/tapedeck/tapedeck/core/model"
)

// Check draws every verdict but linearizability from a finished history.
// It takes time linear in the operations and messages, but for sorting.
func Check(h *History, final Final) Report {
	if err := h.Validate(); err != nil {
		return Report{Verdicts: []Verdict{{Name: BadHistory, Result: Undecided, Detail: err.Error()}}}
	}
	j := newJudge(h, &final)
	j.index()
	return j.report()
}

// CheckAll is Check and CheckLinear in one, the history read once; the verdict
// NotLinearizable is the report's last.
func CheckAll(h *History, final Final, budget Budget) (Report, LinearReport) {
	if h.Validate() != nil {
		return Check(h, final), CheckLinear(h, final, budget)
	}
	j := newJudge(h, &final)
	j.index()
	report, linear := j.report(), j.linear(budget)
	report.Verdicts = append(report.Verdicts, linear.Verdict())
	return report, linear
}

// report draws the verdicts from an indexed history.
func (j *judge) report() Report {
	for _, p := range j.parts {
		j.judgeLog(p)
	}
	j.judgeLost()
	j.judgeFences()
	for _, s := range j.subs {
		j.judgeSubscription(s)
	}
	j.judgeSeeks()
	return Report{Verdicts: j.verdicts}
}

// order is the order of verdicts in a report.
var order = []string{LostWrite, PhantomWrite, Gap, Inconsistent, Reordered, AppendTimeBack, Duplicate, FencedProducer,
	ReadOfFuture, WatermarkBack, NonMonotonic, SkippedMessage, UnseenMessage, Unwanted, TwoOwners, CursorBack,
	AckAfterSeek, StaleAck, RefusedAck, Redelivered, SeekWrong, TwoHolders, KeyOrder, AttemptsWrong, LostMessage,
	DeadLetterTwice, DeadLetterEarly}

// noOp stands for "known from the final state, not from an operation".
const noOp int32 = -1

// judge is one run of Check: the history, indexed.
type judge struct {
	h        *History
	final    *Final
	verdicts []Verdict
	byName   map[string]int

	names     map[string]int32 // topics, keys and members, interned
	topics    map[int32]*topic
	partIndex map[partKey]*part
	parts     []*part  // in order of first mention, so that reports are stable
	lastPart  struct { // what part found last
		name   string
		number model.Partition
		part   *part
	}
	sentIndex map[payloadKey]int32
	sent      []sent
	subIndex  map[string]*sub
	subs      []*sub
	fences    map[fenceKey][]fence
	fenceKeys []fenceKey // in order of first mention
	snapshots map[snapshotKey]map[model.Partition]model.Offset
}

type topic struct {
	published bool // the history holds publishes to it
	deleted   bool // or may have been
}

type partKey struct {
	topic  int32
	number model.Partition
}

type payloadKey struct {
	topic   int32
	payload uint64
}

// sent is one message as its publishers sent it, all attempts taken together.
type sent struct {
	firstCall Moment // of the attempts that may have happened; Open: all were refused
	producer  model.ProducerID
	epoch     model.Epoch
	sequence  model.Sequence
	op        int32 // first attempt
	key       int32 // interned; 0: keyless
	tag       int32 // interned
	attempts  int32 // that may have happened
	copies    int32 // found at distinct offsets
	inFinal   int32 // of those, in a final log
	firstCopy copyAt
	mixed     bool // attempts differ in producer, epoch or sequence
}

type copyAt struct {
	part   *part
	offset model.Offset
}

func newJudge(h *History, final *Final) *judge {
	j := &judge{
		h: h, final: final,
		byName:    map[string]int{},
		names:     map[string]int32{"": 0},
		topics:    map[int32]*topic{},
		partIndex: map[partKey]*part{},
		subIndex:  map[string]*sub{},
		fences:    map[fenceKey][]fence{},
		snapshots: map[snapshotKey]map[model.Partition]model.Offset{},
	}
	for i, name := range order {
		j.verdicts = append(j.verdicts, Verdict{Name: name})
		j.byName[name] = i
	}
	return j
}

// checked counts one judged case of a verdict.
func (j *judge) checked(name string) { j.verdicts[j.byName[name]].Checked++ }

// fail notes a failure; the first one's detail and operations are kept.
func (j *judge) fail(name string, ops []int32, format string, args ...any) {
	v := &j.verdicts[j.byName[name]]
	v.Count++
	if v.Result == Failed {
		return
	}
	v.Result, v.Detail, v.Ops = Failed, fmt.Sprintf(format, args...), nil
	for _, op := range ops {
		if op != noOp {
			v.Ops = append(v.Ops, int(op))
		}
	}
}

// undecided notes that a verdict lacks what it needs; a failure outweighs it.
func (j *judge) undecided(name string, format string, args ...any) {
	v := &j.verdicts[j.byName[name]]
	if v.Result == OK {
		v.Result, v.Detail = Undecided, fmt.Sprintf(format, args...)
	}
}

func (j *judge) intern(name string) int32 {
	id, there := j.names[name]
	if !there {
		id = int32(len(j.names))
		j.names[name] = id
	}
	return id
}

func (j *judge) topic(name string) (int32, *topic) {
	id := j.intern(name)
	t := j.topics[id]
	if t == nil {
		t = &topic{}
		j.topics[id] = t
	}
	return id, t
}

func (j *judge) part(name string, number model.Partition) *part {
	if last := &j.lastPart; last.part != nil && last.number == number && last.name == name {
		return last.part
	}
	id, t := j.topic(name)
	key := partKey{id, number}
	p := j.partIndex[key]
	if p == nil {
		p = &part{topicID: id, topic: t, name: fmt.Sprintf("%s/%d", name, number), slots: map[model.Offset]int32{}}
		j.partIndex[key] = p
		j.parts = append(j.parts, p)
	}
	j.lastPart.name, j.lastPart.number, j.lastPart.part = name, number, p
	return p
}

// index reads the whole history and the final state.
func (j *judge) index() {
	j.readPublishes()
	j.readFinal()
	j.readOps()
	for _, p := range j.parts {
		p.sortOffsets()
	}
	for _, s := range j.subs {
		for _, sp := range s.parts {
			sp.wild = min(sp.wild, s.wild)
			sp.sortSeeks()
		}
	}
}

// readPublishes learns what was sent, and which topics were deleted.
func (j *judge) readPublishes() {
	total := 0
	for i := range j.h.Ops {
		if p := j.h.Ops[i].Publish; p != nil {
			total += len(p.Messages)
		}
	}
	j.sent, j.sentIndex = make([]sent, 0, total), make(map[payloadKey]int32, total)
	for i := range j.h.Ops {
		op := &j.h.Ops[i]
		switch {
		case op.Delete != nil && op.Delete.Topic != "" && op.maybe():
			_, t := j.topic(op.Delete.Topic)
			t.deleted = true
		case op.Publish != nil:
			j.readPublish(int32(i), op)
		}
	}
}

func (j *judge) readPublish(i int32, op *Op) {
	p := op.Publish
	id, t := j.topic(p.Topic)
	t.published = true
	for n := range p.Messages {
		m := &p.Messages[n]
		sequence := p.Sequence + model.Sequence(n)
		key := payloadKey{id, m.Payload}
		at, there := j.sentIndex[key]
		if !there {
			at = int32(len(j.sent))
			j.sentIndex[key] = at
			j.sent = append(j.sent, sent{firstCall: Open, op: i, key: j.intern(m.Key), tag: j.intern(m.Tag),
				producer: p.Producer, epoch: p.Epoch, sequence: sequence})
		}
		s := &j.sent[at]
		if s.producer != p.Producer || s.epoch != p.Epoch || s.sequence != sequence {
			s.mixed = true
		}
		if op.maybe() {
			s.attempts++
			s.firstCall = min(s.firstCall, op.Call)
		}
	}
}

func (j *judge) lookup(topic int32, payload uint64) *sent {
	at, there := j.sentIndex[payloadKey{topic, payload}]
	if !there {
		return nil
	}
	return &j.sent[at]
}

// readFinal puts the final logs in place first, so that observations are
// compared with what is really there.
func (j *judge) readFinal() {
	for i := range j.final.Logs {
		f := &j.final.Logs[i]
		p := j.part(f.Topic, f.Partition)
		if p.final == nil {
			p.final = &FinalLog{LogStart: f.LogStart}
		}
		p.final.HighWatermark = f.HighWatermark
		p.list = slices.Grow(p.list, len(f.Messages))
		next := p.final.LogStart
		if n := len(p.final.Messages); n > 0 {
			next = p.final.Messages[n-1].Offset + 1
		}
		for k := range f.Messages {
			m := &f.Messages[k]
			j.checked(Gap)
			if m.Offset != next {
				j.fail(Gap, nil, "%s: the final log has offset %d where %d was due", p.name, m.Offset, next)
			}
			next = m.Offset + 1
			s := p.slot(m.Offset)
			if s.there {
				j.fail(Inconsistent, nil, "%s: the final log has offset %d twice", p.name, m.Offset)
				continue
			}
			*s = slot{offset: m.Offset, payload: m.Payload, appended: m.AppendTime, producer: m.Producer,
				epoch: m.Epoch, sequence: m.Sequence, known: Open, ackBy: Open, op: noOp, ackOp: noOp,
				there: true, inFinal: true}
			j.countCopy(p, s)
		}
		if len(f.Messages) > 0 {
			p.final.Messages = f.Messages
		}
	}
	for _, p := range j.parts {
		if p.final != nil {
			j.judgeEnd(p)
		}
	}
}

// judgeEnd holds the final log's end to its high watermark.
func (j *judge) judgeEnd(p *part) {
	end := p.final.LogStart
	if n := len(p.final.Messages); n > 0 {
		end = p.final.Messages[n-1].Offset + 1
	}
	if end != p.final.HighWatermark {
		j.fail(Gap, nil, "%s: the final log ends at %d, its high watermark is %d", p.name, end, p.final.HighWatermark)
	}
}

func (j *judge) countCopy(p *part, s *slot) {
	m := j.lookup(p.topicID, s.payload)
	if m == nil {
		return
	}
	m.copies++
	if s.inFinal {
		m.inFinal++
	}
	if m.copies == 1 {
		m.firstCopy = copyAt{p, s.offset}
	}
}

// readOps collects observations in order of the calls.
func (j *judge) readOps() {
	for i := range j.h.Ops {
		op := &j.h.Ops[i]
		at := int32(i)
		switch {
		case op.Publish != nil && op.done():
			j.readPublished(at, op)
		case op.Fetch != nil && op.done():
			j.readFetch(at, op)
		case op.DescribeTopic != nil && op.done():
			for _, s := range op.DescribeTopic.Partitions {
				j.part(op.DescribeTopic.Topic, s.Partition).watermark(at, op, s.HighWatermark, true)
			}
		case op.OpenProducer != nil && op.done() && op.OpenProducer.Fence:
			j.readFence(at, op)
		case op.Pull != nil && op.done():
			j.readPull(at, op)
		case op.Pull != nil:
			j.readLostPull(op)
		case op.Leave != nil && op.maybe():
			j.readLeave(op)
		case op.Ack != nil && len(op.Ack.Offsets) > 0:
			j.readSingles(at, op)
		case op.Ack != nil && op.maybe():
			j.readAck(at, op)
		case op.Ack != nil:
			sp := j.subPart(op.Ack.Subscription, op.Ack.Partition)
			sp.refused = append(sp.refused, at)
		case op.Nack != nil && op.maybe():
			sp := j.subPart(op.Nack.Subscription, op.Nack.Partition)
			sp.nacked = true
			sp.nacks = append(sp.nacks, nackAt{op.Nack.Offset, op.Call})
		case op.Seek != nil && op.maybe():
			j.readSeek(at, op)
		case op.Describe != nil && op.done():
			j.readDescribe(at, op)
		case op.Create != nil && op.Create.Subscription != "" && op.maybe():
			j.sub(op.Create.Subscription).create = op.Create
		case op.Delete != nil && op.Delete.Subscription != "" && op.maybe():
			j.sub(op.Delete.Subscription).deleted = true
		}
	}
}

func (j *judge) readPublished(i int32, op *Op) {
	pub := op.Publish
	p := j.part(pub.Topic, pub.Partition)
	for n := range pub.Messages {
		s := j.observe(p, i, op, pub.Offset+model.Offset(n), pub.Messages[n].Payload, 0)
		if s.payload == pub.Messages[n].Payload && op.Return < s.ackBy {
			s.ackBy, s.ackOp = op.Return, i
		}
	}
	p.watermark(i, op, pub.Offset+model.Offset(len(pub.Messages)), false)
}

func (j *judge) readFetch(i int32, op *Op) {
	f := op.Fetch
	p := j.part(f.Topic, f.Partition)
	next := f.Offset
	for n := range f.Messages {
		m := &f.Messages[n]
		if j.checked(Gap); m.Offset != next {
			j.fail(Gap, []int32{i}, "%s: a fetch at %d got offset %d where %d was due", p.name, f.Offset, m.Offset, next)
		}
		next = m.Offset + 1
		if j.checked(ReadOfFuture); m.Offset >= f.HighWatermark {
			j.fail(ReadOfFuture, []int32{i}, "%s: a fetch got offset %d above its high watermark %d",
				p.name, m.Offset, f.HighWatermark)
		}
		j.read(p, i, op, m)
	}
	p.watermark(i, op, f.HighWatermark, f.Fresh)
}

// read takes in one message that a reader got.
func (j *judge) read(p *part, i int32, op *Op, m *Message) {
	s := j.observe(p, i, op, m.Offset, m.Payload, m.AppendTime)
	if !s.seen {
		s.seen, s.op = true, i
	}
	sent := j.lookup(p.topicID, m.Payload)
	if sent != nil && op.Return < sent.firstCall && sent.firstCall != Open {
		j.fail(ReadOfFuture, []int32{i, sent.op}, "%s: offset %d was read before its publish was called", p.name, m.Offset)
	}
}

// observe takes in that an offset holds a payload, as told by an answer.
func (j *judge) observe(p *part, i int32, op *Op, o model.Offset, payload uint64, appended model.Wall) *slot {
	s := p.slot(o)
	if !s.there {
		*s = slot{offset: o, payload: payload, appended: appended, known: Open, ackBy: Open, op: i, ackOp: noOp, there: true}
		j.countCopy(p, s)
	}
	j.checked(Inconsistent)
	if s.payload != payload {
		j.fail(Inconsistent, []int32{s.op, i}, "%s: offset %d held payload %d, then %d", p.name, o, s.payload, payload)
		return s
	}
	if s.appended == 0 {
		s.appended = appended
	} else if appended != 0 && appended != s.appended {
		j.fail(Inconsistent, []int32{s.op, i}, "%s: offset %d had append time %d, then %d", p.name, o, s.appended, appended)
	}
	s.known = min(s.known, op.Return)
	if s.op == noOp {
		s.op = i
	}
	return s
}
