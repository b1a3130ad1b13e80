package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/session"
)

// producer publishes through a session, idempotently.
type producer struct {
	driver
	session *session.Producer
	topic   string
	sent    int
	failed  []string // outcomes that were errors although nothing need fail
}

func (r *run) startProducer(topic string, number int, every time.Duration) {
	name := fmt.Sprintf("p%d.%s", number, topic)
	c := r.newClient(name)
	s := session.NewProducer(session.ProducerConfig{
		Topic: topic, Name: name, Seed: c.rand.Uint64(),
		Linger:           c.rand.between(0, 20*time.Millisecond) - time.Nanosecond,
		MaxBatchMessages: pick(c.rand, 1, 3, 100),
		InFlight:         pick(c.rand, 1, 2, 8),
		TryTimeout:       pick(c.rand, 500*time.Millisecond, 3*time.Second),
		DeliveryTimeout:  pick(c.rand, 4*time.Second, 5*time.Minute, 5*time.Minute),
	})
	p := &producer{driver: driver{client: c, machine: s}, session: s, topic: topic}
	p.after = p.outcomes
	r.producers = append(r.producers, p)
	p.work(every)
}

// work adds a message now and then, sometimes a few at once.
func (p *producer) work(every time.Duration) {
	p.later(p.rand.about(every), func() {
		if p.run.resting() {
			return
		}
		for range pick(p.rand, 1, 1, 1, 4) {
			p.sent++
			m := p.run.message(p.client, p.sent)
			if err := p.session.Add(p.now(), m, uint64(p.sent)); err != nil && err.Reason != model.ReasonThrottled {
				p.failed = append(p.failed, err.Error())
			}
		}
		p.pump()
		p.work(every)
	})
}

// outcomes takes what was decided. A message may fail only by running out of
// time while things were broken.
func (p *producer) outcomes() {
	for _, o := range p.session.Outcomes() {
		switch {
		case o.Err == nil:
			p.run.acked++
			if o.Duplicate {
				p.run.probe("retry deduplicated")
			}
		case p.run.healed && o.Err.Code != model.DeadlineExceeded && o.Err.Reason != model.ReasonUnknownOutcome:
			p.failed = append(p.failed, fmt.Sprintf("message %d: %v", o.Token, o.Err))
		default:
			p.run.probe("publish timed out")
		}
	}
}

// message makes a message with a unique payload.
func (r *run) message(c *client, number int) batch.Message {
	l := &r.w.opts.Load
	payload := fmt.Sprintf("%s-%d", c.name, number)
	payload += strings.Repeat(".", c.rand.IntN(l.Payload+1))
	m := batch.Message{Payload: []byte(payload), Attributes: l.tags([]byte(payload))}
	if key := c.rand.IntN(l.Keys + 1); key > 0 {
		m.Key = fmt.Appendf(nil, "k%d", key)
	}
	return m
}

// startPlain publishes by hand and without an id, through the gateway's split.
func (r *run) startPlain(topic string, number int, every time.Duration) {
	c := r.newClient(fmt.Sprintf("plain%d.%s", number, topic))
	sent := 0
	var work func()
	work = func() {
		c.later(c.rand.about(every), func() {
			if r.resting() {
				return
			}
			q := &call.Publish{Topic: topic}
			for range pick(c.rand, 1, 1, 3) {
				sent++
				q.Messages = append(q.Messages, r.message(c, sent))
			}
			c.ask(q, 3*time.Second, func(call.ClientResult, *model.Error) {})
			work()
		})
	}
	work()
}
