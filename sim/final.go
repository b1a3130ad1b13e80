package sim

import (
	"fmt"
	"time"

	"github.com/tapedeck/tapedeck/checker"
	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// readBack reads every partition's log and every cursor through the front door:
// the final state that the verdicts compare the history with.
func (r *run) readBack(c *client) string {
	// All there are: an operator's creation that was given up may have come after
	// the deletion of what it made.
	var topics []model.Topic
	listed := r.must(c, &call.ListTopics{}, func(result call.ClientResult) {
		topics = result.(*call.ListTopicsResult).Topics
	})
	if stuck := r.eventually(r.w.opts.Liveness, unless(listed, "listing the topics")); stuck != "" {
		return stuck
	}
	for _, t := range topics {
		for p := range t.Partitions {
			log, stuck := r.readLog(c, t.Name, model.Partition(p))
			if stuck != "" {
				return stuck
			}
			r.final.Logs = append(r.final.Logs, log)
		}
	}
	for _, ref := range r.refs {
		var s checker.FinalSubscription
		finished := r.must(c, &call.GetSubscription{Subscription: ref}, func(result call.ClientResult) {
			s = checker.FinalSubscription{Subscription: ref}
			for _, p := range result.(*call.GetSubscriptionResult).Partitions {
				if p.Err == nil {
					s.Partitions = append(s.Partitions, checker.Cursor{Partition: p.Partition, Offset: p.Cursor})
				}
			}
		})
		if stuck := r.eventually(r.w.opts.Liveness, unless(finished, "reading the cursors of "+ref)); stuck != "" {
			return stuck
		}
		r.final.Subscriptions = append(r.final.Subscriptions, s)
	}
	return ""
}

// unless says that something is missing until done is set.
func unless(done *bool, what string) func() string {
	return func() string {
		if *done {
			return ""
		}
		return what + " does not succeed"
	}
}

// readLog fetches [log start, high watermark) of one partition.
func (r *run) readLog(c *client, topic string, p model.Partition) (log checker.FinalLog, stuck string) {
	log = checker.FinalLog{Topic: topic, Partition: p}
	what := fmt.Sprintf("reading %s/%d to its end", topic, p)
	finished := new(bool)
	known := r.must(c, &call.GetTopic{Name: topic}, func(result call.ClientResult) {
		for _, s := range result.(*call.GetTopicResult).Partitions {
			if s.Partition == p {
				log.LogStart = s.LogStart
			}
		}
	})
	if stuck := r.eventually(r.w.opts.Liveness, unless(known, what)); stuck != "" {
		return log, stuck
	}
	at := log.LogStart
	var read func()
	read = func() {
		c.ask(&call.Fetch{Topic: topic, Partition: p, Offset: at}, 3*time.Second,
			func(result call.ClientResult, err *model.Error) {
				if err != nil {
					if err.Reason == model.ReasonOffsetTooOld && err.Start > at {
						// Retention went on meanwhile: what was read above it stays.
						at, log.LogStart, log.Messages = err.Start, err.Start, nil
					}
					c.later(100*time.Millisecond, read)
					return
				}
				f := result.(*call.FetchResult)
				for _, v := range f.Batches {
					for _, m := range delivered([]batch.View{v}, 0, at, f.Next, 0) {
						log.Messages = append(log.Messages, checker.LogMessage{Offset: m.Offset, Payload: m.Payload,
							AppendTime: m.AppendTime, Producer: v.Producer(), Epoch: v.Epoch(),
							Sequence: v.Sequence() + model.Sequence(m.Offset-v.Base())})
					}
				}
				at = f.Next
				if log.HighWatermark = f.HighWatermark; at >= f.HighWatermark {
					*finished = true
					return
				}
				read()
			})
	}
	read()
	return log, r.eventually(r.w.opts.Liveness, unless(finished, what))
}
