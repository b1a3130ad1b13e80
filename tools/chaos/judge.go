package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/api/tapedeck/v1/tapedeckv1connect"
	"github.com/tapedeck/tapedeck/checker"
	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/model"
)

// Patience at the end of a run, when nothing is broken any more.
const (
	flushPatience = 3 * time.Minute
	drainPatience = 5 * time.Minute
	readPatience  = 2 * time.Minute
)

// outcome is what the end of a run says.
type outcome struct {
	acked, lost, duplicates, disorder int
	trimmed                           int // acknowledged and since taken by retention
	read                              int // messages in the final logs
	report                            checker.Report
	linear                            checker.LinearReport
	problems                          []string
}

func (o *outcome) problem(format string, args ...any) {
	o.problems = append(o.problems, fmt.Sprintf(format, args...))
}

// finish ends the load of a healed cluster, reads everything back and judges.
func (l *load) finish(ctx context.Context, folder string) (*outcome, error) {
	o := &outcome{}
	l.stopWriters()
	if !within(flushPatience, l.writers.Wait) {
		return nil, fmt.Errorf("the producers did not end within %v of healing", flushPatience)
	}
	if err := l.drain(ctx); err != nil {
		o.problem("%v", err)
	}
	l.stopReaders()
	if !within(time.Minute, l.readers.Wait) {
		return nil, errors.New("the consumers did not leave within a minute")
	}
	final, err := l.readBack(ctx, o)
	if err != nil {
		return nil, err
	}
	l.rec.mu.Lock()
	defer l.rec.mu.Unlock()
	if err := writeHistory(filepath.Join(folder, "history.jsonl"), &l.rec.history, final); err != nil {
		return nil, err
	}
	o.report, o.linear = checker.CheckAll(&l.rec.history, final, checker.DefaultBudget)
	for _, v := range o.report.Verdicts {
		if v.Result != checker.OK {
			o.problem("%s %s: %d of %d: %s %v", v.Name, v.Result, v.Count, v.Checked, v.Detail, v.Ops)
		}
	}
	if l.rec.strange != nil {
		o.problem("the history is incomplete: %v", l.rec.strange)
	}
	return o, nil
}

// within runs f and says whether it ended in time.
func within(d time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

// keepHistory writes what was noted so far, unless the whole is written already.
func (l *load) keepHistory(folder string) error {
	name := filepath.Join(folder, "history.jsonl")
	if _, err := os.Stat(name); err == nil {
		return nil
	}
	l.rec.mu.Lock()
	defer l.rec.mu.Unlock()
	return writeHistory(name, &l.rec.history, checker.Final{})
}

func writeHistory(name string, h *checker.History, final checker.Final) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(checker.Write(f, h, final), f.Close())
}

// drain waits until every subscription has been read and acked to its end.
func (l *load) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drainPatience)
	defer cancel()
	c := l.newClient(false, l.cluster.addresses()...)
	defer c.Close()
	for _, ref := range l.refs() {
		for {
			s, err := c.GetSubscription(ctx, &tapedeckv1.GetSubscriptionRequest{Subscription: ref})
			left, known := uint64(0), err == nil
			for _, p := range s.GetPartitions() {
				left += p.GetLag()
				known = known && p.GetError() == nil
			}
			if known && left == 0 {
				break
			}
			if !sleep(ctx, 100*time.Millisecond) {
				return fmt.Errorf("%s is not read to its end %v after healing: %d messages are left (%v)",
					ref, drainPatience, left, err)
			}
		}
	}
	return nil
}

func (l *load) refs() []string {
	var refs []string
	if l.cfg.consumers > 0 {
		refs = append(refs, subscriptions...)
	}
	if l.cfg.seeker {
		refs = append(refs, seekRef)
	}
	return refs
}

// raw is a connection to one node that no history knows of.
type raw struct {
	id     string
	pubsub tapedeckv1connect.PubSubServiceClient
	admin  tapedeckv1connect.AdminServiceClient
}

func newRaw(id, address string) raw {
	c := connect.NewClient(connecthttp.NewTransport(&http.Client{}, "http://"+address,
		connecthttp.WithReadMaxBytes(64<<20)))
	return raw{id, tapedeckv1connect.NewPubSubServiceClient(c), tapedeckv1connect.NewAdminServiceClient(c)}
}

// stored is a message as read back.
type stored struct {
	checker.LogMessage
	key      string
	producer uint32 // the load's number of it
	number   uint64
}

// readBack reads every partition through every node, holds the copies against
// each other, the first against what was acknowledged, and returns the final state.
func (l *load) readBack(ctx context.Context, o *outcome) (checker.Final, error) {
	ctx, cancel := context.WithTimeout(ctx, readPatience*time.Duration(len(l.cluster.nodes)))
	defer cancel()
	final := checker.Final{Drained: len(l.refs()) > 0}
	var logs [partitions][]stored
	for i, n := range l.cluster.nodes {
		r := newRaw(n.id, n.address)
		for p := range partitions {
			log, messages, err := r.readLog(ctx, uint32(p))
			if err != nil {
				return final, fmt.Errorf("read partition %d back through %s: %w", p, n.id, err)
			}
			if i == 0 {
				final.Logs = append(final.Logs, log)
				logs[p] = messages
				continue
			}
			if at, same := sameWhereBoth(logs[p], messages); !same {
				o.problem("partition %d differs between %s and %s at offset %d", p, l.cluster.nodes[0].id, n.id, at)
			}
		}
	}
	for _, ref := range l.refs() {
		s, err := newRaw("", l.cluster.nodes[0].address).admin.GetSubscription(ctx,
			&tapedeckv1.GetSubscriptionRequest{Subscription: ref})
		if err != nil {
			return final, fmt.Errorf("read the cursors of %s back: %w", ref, err)
		}
		f := checker.FinalSubscription{Subscription: ref}
		for _, p := range s.GetPartitions() {
			f.Partitions = append(f.Partitions,
				checker.Cursor{Partition: model.Partition(p.GetPartition()), Offset: model.Offset(p.GetCursor())})
		}
		final.Subscriptions = append(final.Subscriptions, f)
	}
	l.count(o, &final, &logs)
	return final, nil
}

// sameWhereBoth compares two copies of a log from where both start: retention may
// move on between the readings. Both must go to the end.
func sameWhereBoth(a, b []stored) (at model.Offset, same bool) {
	if len(a) == 0 || len(b) == 0 {
		return 0, len(a) == len(b)
	}
	start := max(a[0].Offset, b[0].Offset)
	later := func(list []stored) []stored {
		i := slices.IndexFunc(list, func(m stored) bool { return m.Offset >= start })
		return list[max(i, 0):]
	}
	a, b = later(a), later(b)
	for k := range min(len(a), len(b)) {
		if a[k] != b[k] {
			return a[k].Offset, false
		}
	}
	return start + model.Offset(min(len(a), len(b))), len(a) == len(b)
}

// count compares what producers were told with what is there.
func (l *load) count(o *outcome, final *checker.Final, logs *[partitions][]stored) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := map[uint64]place{}
	for p := range logs {
		last := map[string]uint64{} // key → number of its last message, plus one
		for _, m := range logs[p] {
			o.read++
			if _, there := at[m.Payload]; there {
				o.duplicates++
			}
			at[m.Payload] = place{uint32(p), uint64(m.Offset)}
			if m.number < last[m.key] {
				o.disorder++
			}
			last[m.key] = m.number + 1
		}
	}
	for id, s := range l.sent {
		if !s.acked {
			continue
		}
		o.acked++
		if found, there := at[id]; there && found == s.at {
			continue
		}
		if s.at.partition < partitions && s.at.offset < uint64(final.Logs[s.at.partition].LogStart) {
			o.trimmed++
			continue
		}
		o.lost++
	}
	if o.lost+o.duplicates+o.disorder > 0 {
		o.problem("acknowledged and lost %d, duplicates %d, order violations %d", o.lost, o.duplicates, o.disorder)
	}
}

// readLog reads one partition's whole log through this node.
func (r raw) readLog(ctx context.Context, p uint32) (log checker.FinalLog, messages []stored, err error) {
	log = checker.FinalLog{Topic: topicName, Partition: model.Partition(p)}
	var at, end uint64
	for {
		t, err := r.admin.GetTopic(ctx, &tapedeckv1.GetTopicRequest{Topic: topicName})
		if err == nil && t.GetPartitions()[p].GetError() == nil {
			at, end = t.GetPartitions()[p].GetLogStart(), t.GetPartitions()[p].GetHighWatermark()
			break
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return log, nil, fmt.Errorf("describe the topic: %w", err)
		}
	}
	log.LogStart, log.HighWatermark = model.Offset(at), model.Offset(end)
	var last error
	for at < end {
		res, err := r.pubsub.Fetch(ctx, &tapedeckv1.FetchRequest{Topic: topicName, Partition: p, Offset: at,
			MaxBytes: 4 << 20, RawBatches: true})
		if err != nil || res.GetNextOffset() <= at {
			if last = err; !sleep(ctx, 100*time.Millisecond) {
				return log, nil, fmt.Errorf("at offset %d of %d: %w", at, end, errors.Join(ctx.Err(), last))
			}
			continue
		}
		for _, x := range res.GetRanges() {
			more, err := storedIn(x)
			if err != nil {
				return log, nil, err
			}
			messages = append(messages, more...)
		}
		at = res.GetNextOffset()
	}
	for _, m := range messages {
		log.Messages = append(log.Messages, m.LogMessage)
	}
	return log, messages, nil
}

func storedIn(x *tapedeckv1.BatchRange) (out []stored, err error) {
	err = eachIn(x, func(v batch.View, i int, o model.Offset, b *batch.Message) {
		m := stored{key: string(b.Key), LogMessage: checker.LogMessage{
			Offset: o, Payload: payloadID(b.Payload), AppendTime: v.AppendTime(),
			Producer: v.Producer(), Epoch: v.Epoch(), Sequence: v.Sequence() + model.Sequence(i)}}
		if len(b.Payload) >= payloadHead {
			m.producer = binary.BigEndian.Uint32(b.Payload)
			m.number = binary.BigEndian.Uint64(b.Payload[4:])
		}
		out = append(out, m)
	})
	return out, err
}

// percentile of a list of times; 0 of an empty one.
func percentile(times []time.Duration, p int) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[(len(sorted)-1)*p/100]
}
