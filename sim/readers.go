package sim

import (
	"fmt"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// repeat acts at drawn intervals until the cluster is healed.
func (c *client) repeat(every time.Duration, act func()) {
	c.later(c.rand.about(every), func() {
		if !c.run.resting() {
			act()
			c.repeat(every, act)
		}
	})
}

// startReader fetches a topic's partitions without a subscription, onwards and
// at times from somewhere before.
func (r *run) startReader(t TopicOptions, number int, every time.Duration) {
	c := r.newClient(fmt.Sprintf("reader%d.%s", number, t.Name))
	next := make([]model.Offset, t.Partitions)
	c.repeat(every, func() {
		p := c.rand.IntN(int(t.Partitions))
		back := c.rand.Uint64()
		q := &call.Fetch{Topic: t.Name, Partition: model.Partition(p), Offset: next[p],
			MaxMessages: pick[uint32](c.rand, 0, 2, 20), MaxBytes: pick[uint32](c.rand, 0, 300),
			Wait: pick(c.rand, 0, 0, 300*time.Millisecond)}
		if back%4 == 0 && next[p] > 0 {
			q.Offset = model.Offset(back / 4 % uint64(next[p]))
		}
		c.ask(q, 2*time.Second, func(result call.ClientResult, err *model.Error) {
			if err == nil {
				next[p] = max(next[p], result.(*call.FetchResult).Next)
			}
		})
	})
}

// startSeeker moves a subscription's cursors about.
func (r *run) startSeeker(ref string, t TopicOptions, every time.Duration) {
	c := r.newClient("seeker." + ref)
	var ends []model.Offset // as last told
	c.repeat(every, func() {
		q := &call.Seek{Subscription: ref}
		switch c.rand.IntN(5) {
		case 0:
			q.To.Kind = model.StartLatest
		case 1:
			q.To = model.Start{Kind: model.StartTime,
				Time: epoch + model.Wall(c.rand.between(0, r.w.loop.now+time.Second))}
			if t := r.rec.someTime(t.Name, c.rand); t != 0 {
				q.To.Time = t
			}
		case 2:
			q.To.Kind = model.StartEarliest
			q.Partitions = []model.Partition{model.Partition(c.rand.IntN(int(t.Partitions)))}
		case 3:
			q.To.Kind = model.StartEarliest
		default:
			q.To.Kind = model.StartOffsets
			p := c.rand.IntN(int(t.Partitions))
			to := model.Offset(0)
			if p < len(ends) {
				to = model.Offset(c.rand.Uint64N(uint64(ends[p]) + 1))
			}
			q.Offsets = []call.PartitionOffset{{Partition: model.Partition(p), Offset: to}}
		}
		c.ask(q, 3*time.Second, func(_ call.ClientResult, err *model.Error) {
			if err == nil {
				r.probe("seek")
			}
		})
		c.ask(&call.GetTopic{Name: t.Name}, 2*time.Second, func(result call.ClientResult, err *model.Error) {
			if err == nil {
				ends = ends[:0]
				for _, p := range result.(*call.GetTopicResult).Partitions {
					ends = append(ends, p.HighWatermark)
				}
			}
		})
	})
}

// startKeeper takes snapshots of a subscription's cursors, seeks back to them, and
// deletes them.
func (r *run) startKeeper(ref string, every time.Duration) {
	c := r.newClient("keeper." + ref)
	var names []string // that were taken, and not deleted
	taken := 0
	c.repeat(every, func() {
		switch k := c.rand.IntN(4); {
		case k == 0 && len(names) > 0:
			name := names[0]
			names = names[1:]
			c.ask(&call.Snapshot{Subscription: ref, Name: name, Forget: true}, 3*time.Second,
				func(call.ClientResult, *model.Error) {})
		case k == 1 && len(names) > 0:
			q := &call.Seek{Subscription: ref, To: model.Start{Kind: model.StartSnapshot},
				Snapshot: names[c.rand.IntN(len(names))]}
			c.ask(q, 3*time.Second, func(_ call.ClientResult, err *model.Error) {
				if err == nil {
					r.probe("seek to a snapshot")
				}
			})
		default:
			taken++
			name := fmt.Sprintf("at-%d", taken)
			c.ask(&call.Snapshot{Subscription: ref, Name: name}, 3*time.Second,
				func(_ call.ClientResult, err *model.Error) {
					if err == nil {
						names = append(names, name)
					}
				})
		}
	})
}

// startDescriber reads cursors and topics freshly.
func (r *run) startDescriber(ref, topic string, every time.Duration) {
	c := r.newClient("describer." + ref)
	c.repeat(every, func() {
		if c.rand.IntN(4) == 0 {
			c.ask(&call.GetTopic{Name: topic}, 2*time.Second, func(call.ClientResult, *model.Error) {})
			return
		}
		c.ask(&call.GetSubscription{Subscription: ref}, 2*time.Second, func(call.ClientResult, *model.Error) {})
	})
}
