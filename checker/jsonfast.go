package checker

import (
	"math"
	"slices"

	"github.com/tapedeck/tapedeck/core/model"
)

// fast reads the lines that make up nearly all of a long history - the kinds of
// operations that clients make all day, and final logs - several times as fast as
// encoding/json. It knows what recorders write and gives up on everything else
// (escapes, fractions, nulls, fields it does not know), leaving that line to
// encoding/json: what a line means is decided there alone.
type fast struct {
	text  []byte
	at    int
	bad   bool
	names map[string]string // strings seen before: most of a history repeats a few

	published []Published // lists being read, before they are copied to their size
	read      []Message
	stored    []LogMessage
}

// maxNames bounds the strings kept for reuse.
const maxNames = 1 << 16

// operation reads a whole line as an operation; false: encoding/json must.
func (f *fast) operation(text []byte, op *Op) bool {
	f.text, f.at, f.bad = text, 0, false
	*op = Op{Return: Open}
	kinds := 0
	f.object(func(key []byte) {
		switch string(key) {
		case "client":
			op.Client = ClientID(f.number(math.MaxUint32))
		case "call":
			op.Call = Moment(f.number(math.MaxInt64))
		case "return":
			if !f.null() {
				op.Return = Moment(f.number(math.MaxInt64))
			}
		case "outcome":
			op.Outcome = Outcome(f.string())
		case "reason":
			op.Reason = model.Reason(f.string())
		case "publish":
			kinds++
			op.Publish = &Publish{}
			f.publish(op.Publish)
		case "fetch":
			kinds++
			op.Fetch = &Fetch{}
			f.fetch(op.Fetch)
		case "pull":
			kinds++
			op.Pull = &Pull{}
			f.pull(op.Pull)
		case "ack":
			kinds++
			op.Ack = &Ack{}
			f.ack(op.Ack)
		default:
			f.bad = true
		}
	})
	return f.end() && kinds == 1
}

// log reads a whole line as a piece of a final log.
func (f *fast) log(text []byte, l *FinalLog) bool {
	f.text, f.at, f.bad = text, 0, false
	*l = FinalLog{}
	there := 0
	f.object(func(key []byte) {
		if there++; string(key) != "log" {
			f.bad = true
			return
		}
		f.object(func(key []byte) {
			switch string(key) {
			case "topic":
				l.Topic = f.string()
			case "partition":
				l.Partition = model.Partition(f.number(math.MaxUint32))
			case "log_start":
				l.LogStart = model.Offset(f.number(math.MaxUint64))
			case "high_watermark":
				l.HighWatermark = model.Offset(f.number(math.MaxUint64))
			case "messages":
				f.bad = f.bad || l.Messages != nil
				f.stored = f.stored[:0]
				f.list(func() {
					var m LogMessage
					f.logMessage(&m)
					f.stored = append(f.stored, m)
				})
				l.Messages = slices.Clone(f.stored)
			default:
				f.bad = true
			}
		})
	})
	return f.end() && there == 1
}

func (f *fast) logMessage(m *LogMessage) {
	f.object(func(key []byte) {
		switch string(key) {
		case "offset":
			m.Offset = model.Offset(f.number(math.MaxUint64))
		case "payload":
			m.Payload = f.number(math.MaxUint64)
		case "append_time":
			m.AppendTime = model.Wall(f.number(math.MaxInt64))
		case "producer":
			m.Producer = model.ProducerID(f.number(math.MaxUint64))
		case "epoch":
			m.Epoch = model.Epoch(f.number(math.MaxUint64))
		case "sequence":
			m.Sequence = model.Sequence(f.number(math.MaxUint64))
		default:
			f.bad = true
		}
	})
}

func (f *fast) publish(p *Publish) {
	f.object(func(key []byte) {
		switch string(key) {
		case "topic":
			p.Topic = f.string()
		case "partition":
			p.Partition = model.Partition(f.number(math.MaxUint32))
		case "any_partition":
			p.AnyPartition = f.truth()
		case "producer":
			p.Producer = model.ProducerID(f.number(math.MaxUint64))
		case "epoch":
			p.Epoch = model.Epoch(f.number(math.MaxUint64))
		case "sequence":
			p.Sequence = model.Sequence(f.number(math.MaxUint64))
		case "messages":
			f.bad = f.bad || p.Messages != nil
			f.published = f.published[:0]
			f.list(func() {
				var m Published
				f.object(func(key []byte) {
					switch string(key) {
					case "key":
						m.Key = f.string()
					case "tag":
						m.Tag = f.string()
					case "payload":
						m.Payload = f.number(math.MaxUint64)
					default:
						f.bad = true
					}
				})
				f.published = append(f.published, m)
			})
			p.Messages = slices.Clone(f.published)
		case "offset":
			p.Offset = model.Offset(f.number(math.MaxUint64))
		case "duplicate":
			p.Duplicate = f.truth()
		default:
			f.bad = true
		}
	})
}

func (f *fast) fetch(q *Fetch) {
	f.object(func(key []byte) {
		switch string(key) {
		case "topic":
			q.Topic = f.string()
		case "partition":
			q.Partition = model.Partition(f.number(math.MaxUint32))
		case "offset":
			q.Offset = model.Offset(f.number(math.MaxUint64))
		case "messages":
			q.Messages = f.messages(q.Messages)
		case "high_watermark":
			q.HighWatermark = model.Offset(f.number(math.MaxUint64))
		case "log_start":
			q.LogStart = model.Offset(f.number(math.MaxUint64))
		case "fresh":
			q.Fresh = f.truth()
		default:
			f.bad = true
		}
	})
}

func (f *fast) pull(p *Pull) {
	f.object(func(key []byte) {
		switch string(key) {
		case "subscription":
			p.Subscription = f.string()
		case "member":
			p.Member = model.MemberID(f.string())
		case "pull_sequence":
			p.Sequence = f.number(math.MaxUint64)
		case "generation":
			p.Generation = model.Generation(f.number(math.MaxUint64))
		case "delivery":
			p.Delivery = f.number(math.MaxUint64)
		case "messages":
			p.Messages = f.messages(p.Messages)
		default: // skipped is rare
			f.bad = true
		}
	})
}

func (f *fast) ack(a *Ack) {
	f.object(func(key []byte) {
		switch string(key) {
		case "subscription":
			a.Subscription = f.string()
		case "member":
			a.Member = model.MemberID(f.string())
		case "generation":
			a.Generation = model.Generation(f.number(math.MaxUint64))
		case "partition":
			a.Partition = model.Partition(f.number(math.MaxUint32))
		case "next":
			a.Next = model.Offset(f.number(math.MaxUint64))
		case "offsets":
			f.bad = f.bad || a.Offsets != nil
			f.list(func() { a.Offsets = append(a.Offsets, model.Offset(f.number(math.MaxUint64))) })
			f.bad = f.bad || a.Offsets == nil // a list of none is not none
		case "blind":
			a.Blind = f.truth()
		case "cursor":
			a.Cursor = model.Offset(f.number(math.MaxUint64))
		default:
			f.bad = true
		}
	})
}

// messages reads a list of messages; it is given up on when there is one already.
func (f *fast) messages(before []Message) []Message {
	f.bad = f.bad || before != nil
	f.read = f.read[:0]
	f.list(func() {
		var m Message
		f.object(func(key []byte) {
			switch string(key) {
			case "partition":
				m.Partition = model.Partition(f.number(math.MaxUint32))
			case "attempt":
				m.Attempt = uint32(f.number(math.MaxUint32))
			case "offset":
				m.Offset = model.Offset(f.number(math.MaxUint64))
			case "payload":
				m.Payload = f.number(math.MaxUint64)
			case "append_time":
				m.AppendTime = model.Wall(f.number(math.MaxInt64))
			default:
				f.bad = true
			}
		})
		f.read = append(f.read, m)
	})
	return slices.Clone(f.read)
}

// space passes over white space and returns the byte after it; 0 at the end.
func (f *fast) space() byte {
	for f.at < len(f.text) {
		switch c := f.text[f.at]; c {
		case ' ', '\t', '\n', '\r':
			f.at++
		default:
			return c
		}
	}
	return 0
}

// take passes over one given byte.
func (f *fast) take(c byte) {
	if f.space() != c {
		f.bad = true
		return
	}
	f.at++
}

// end says whether all was understood and nothing is left.
func (f *fast) end() bool { return f.space() == 0 && f.at == len(f.text) && !f.bad }

// object hands each field's name over; the callee reads its value. Of a plain
// field given twice the last one counts, as with encoding/json; lists and objects
// given twice are given up on.
func (f *fast) object(field func(key []byte)) {
	f.take('{')
	if f.space() == '}' {
		f.at++
		return
	}
	for !f.bad {
		key := f.raw()
		f.take(':')
		if f.bad {
			return
		}
		field(key)
		if f.space() == ',' {
			f.at++
			continue
		}
		f.take('}')
		return
	}
}

// list calls once per element; the callee reads it.
func (f *fast) list(element func()) {
	f.take('[')
	if f.space() == ']' {
		f.bad = true // an empty list and none are told apart elsewhere
		return
	}
	for !f.bad {
		element()
		if f.space() == ',' {
			f.at++
			continue
		}
		f.take(']')
		return
	}
}

// raw reads a string of plain ASCII without escapes; it is good as long as the line.
func (f *fast) raw() []byte {
	f.take('"')
	start := f.at
	for f.at < len(f.text) {
		switch c := f.text[f.at]; {
		case c == '"':
			f.at++
			return f.text[start : f.at-1]
		case c == '\\' || c < ' ' || c >= 0x7f:
			f.bad = true
			return nil
		}
		f.at++
	}
	f.bad = true
	return nil
}

// string reads a string and keeps one copy of equal ones.
func (f *fast) string() string {
	raw := f.raw()
	if s, there := f.names[string(raw)]; there {
		return s
	}
	s := string(raw)
	if len(f.names) < maxNames {
		f.names[s] = s
	}
	return s
}

// number reads digits up to a limit: no sign, fraction or exponent.
func (f *fast) number(limit uint64) (n uint64) {
	f.space()
	start := f.at
	for f.at < len(f.text) {
		d := f.text[f.at] - '0'
		if d > 9 {
			break
		}
		if n > (math.MaxUint64-uint64(d))/10 {
			f.bad = true
			return 0
		}
		n = 10*n + uint64(d)
		f.at++
	}
	digits := f.at - start
	if digits == 0 || n > limit || digits > 1 && f.text[start] == '0' {
		f.bad = true
	}
	return n
}

func (f *fast) truth() bool {
	switch {
	case f.word("true"):
		return true
	case f.word("false"):
		return false
	}
	f.bad = true
	return false
}

func (f *fast) null() bool { return f.word("null") }

// word passes over a word if it is there.
func (f *fast) word(w string) bool {
	f.space()
	if len(f.text)-f.at < len(w) || string(f.text[f.at:f.at+len(w)]) != w {
		return false
	}
	f.at += len(w)
	return true
}
