package checker

import (
	"sort"

	"github.com/tapedeck/tapedeck/core/model"
)

// snapshotKey names what a subscription's cursors were kept under.
type snapshotKey struct{ subscription, name string }

// judgeSeeks: a seek puts each cursor where its target says.
func (j *judge) judgeSeeks() {
	for i := range j.h.Ops {
		op := &j.h.Ops[i]
		if op.Seek == nil || !op.done() {
			continue
		}
		asked := map[model.Partition]model.Offset{}
		for _, c := range op.Seek.Offsets {
			asked[c.Partition] = c.Offset
		}
		for _, c := range op.Seek.Cursors {
			p := j.part(topicOf(op.Seek.Subscription), c.Partition)
			if p.final == nil {
				continue
			}
			j.judgeSeek(int32(i), op, p, c, asked)
		}
	}
}

func (j *judge) judgeSeek(i int32, op *Op, p *part, c Cursor, asked map[model.Partition]model.Offset) {
	j.checked(SeekWrong)
	ops := []int32{i}
	start := p.final.LogStart
	switch op.Seek.To {
	case TargetEarliest:
		if c.Offset > start {
			j.fail(SeekWrong, ops, "%s: a seek to earliest went to %d, above the final log start %d", p.name, c.Offset, start)
		}
	case TargetLatest:
		if shown := p.shownBefore(op.Call); c.Offset < shown {
			j.fail(SeekWrong, ops, "%s: a seek to latest went to %d, below %d shown before", p.name, c.Offset, shown)
		}
	case TargetOffsets:
		if want, there := asked[c.Partition]; there && c.Offset != want && want >= start {
			j.fail(SeekWrong, ops, "%s: a seek to offset %d went to %d", p.name, want, c.Offset)
		}
	case TargetSnapshot:
		// Of partitions that were not there yet, the start.
		at, told := j.snapshots[snapshotKey{op.Seek.Subscription, op.Seek.Snapshot}]
		if want := at[c.Partition]; told && c.Offset != want {
			j.fail(SeekWrong, ops, "%s: a seek to snapshot %q went to %d, the cursor was %d when it was taken",
				p.name, op.Seek.Snapshot, c.Offset, want)
		}
	case TargetTime:
		j.judgeSeekTime(i, op, p, c.Offset)
	}
	if c.Offset > p.final.HighWatermark {
		j.fail(SeekWrong, ops, "%s: a seek went to %d, above the final high watermark %d",
			p.name, c.Offset, p.final.HighWatermark)
	}
}

// judgeSeekTime: the cursor goes to the first message appended at or after the
// moment, or to the end as it was then. Going above that message is wrong
// always; going below it, if what stands there was there before the seek.
func (j *judge) judgeSeekTime(i int32, op *Op, p *part, cursor model.Offset) {
	at := sort.Search(len(p.times), func(k int) bool { return p.times[k] >= op.Seek.Time })
	if at < len(p.list) {
		right := &p.list[at]
		if cursor > right.offset && right.offset >= p.final.LogStart {
			j.fail(SeekWrong, []int32{i}, "%s: a seek to time %d went to offset %d, past offset %d of time %d",
				p.name, op.Seek.Time, cursor, right.offset, right.appended)
			return
		}
		if cursor == right.offset {
			return
		}
	}
	s := p.at(cursor)
	if s != nil && s.appended != 0 && s.appended < op.Seek.Time && s.known < op.Call && cursor >= p.final.LogStart {
		j.fail(SeekWrong, []int32{i, s.op}, "%s: a seek to time %d went to offset %d of time %d",
			p.name, op.Seek.Time, cursor, s.appended)
	}
}
