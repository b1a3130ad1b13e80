package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/client"
)

// Failover says how leaders are lost.
type Failover struct {
	Load
	Times  int           `json:"times"`
	Settle time.Duration `json:"settleNs"` // from a node's return to the next loss, and from the loss to its return
	// Kill ends a node's process the hard way; Restore starts it again. They know it by its name.
	Kill, Restore func(ctx context.Context, node string) error `json:"-"`
}

// arrivals are the acks of partition 0.
type arrivals struct {
	mu    sync.Mutex
	last  time.Time
	worst time.Duration
	acked map[uint64]uint64 // message number to offset
	twice int
}

func (a *arrivals) note(r client.Result, payload []byte) {
	now := time.Now()
	number := binary.LittleEndian.Uint64(payload[8:])
	a.mu.Lock()
	defer a.mu.Unlock()
	a.worst = max(a.worst, now.Sub(a.last))
	a.last = now
	if _, again := a.acked[number]; again {
		a.twice++
	}
	a.acked[number] = r.Offset
}

// take returns the longest time without an ack since the last call, the time
// that goes on now included.
func (a *arrivals) take() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	worst := max(a.worst, time.Since(a.last))
	a.worst = 0
	return worst
}

// Run publishes to a topic of one partition, kills its leader again and again,
// and then reads everything back: each acknowledged message must be there, once.
// Each loss is a round; its gap is the longest time without an ack.
func (fo Failover) Run(ctx context.Context, c *client.Client) (*Result, error) {
	if fo.Kill == nil || fo.Restore == nil {
		return nil, errors.New("say how a node is killed and how it is started again")
	}
	fo.Partitions, fo.Rounds = 1, 1
	if fo.Duration == 0 {
		fo.Duration = time.Second
	}
	g, err := newGenerator(ctx, c, &fo.Load)
	if err != nil {
		return nil, err
	}
	if fo.Partitions != 1 {
		return nil, errors.Join(fmt.Errorf("topic %s has %d partitions; name one with a single partition, or a new one",
			fo.Topic, fo.Partitions), g.close(ctx))
	}
	a := &arrivals{last: time.Now(), acked: map[uint64]uint64{}}
	g.unique, g.accepted = true, a.note
	r := &Result{Name: fo.Topic, Kind: "failover", Settings: fo}
	g.start(ctx)
	err = fo.lose(ctx, c, g, a, r)
	if err = errors.Join(err, g.stop(ctx)); err != nil {
		return r, err
	}
	r.Summarize()
	return r, fo.verify(ctx, c, a, r)
}

func (fo *Failover) lose(ctx context.Context, c *client.Client, g *generator, a *arrivals, r *Result) error {
	if err := g.wait(ctx, fo.Warmup+fo.Settle); err != nil {
		return err
	}
	for range fo.Times {
		leader, err := leaderOf(ctx, c, fo.Topic)
		if err != nil {
			return err
		}
		a.take()
		g.swap()
		began := time.Now()
		if err := fo.Kill(ctx, leader); err != nil {
			return fmt.Errorf("kill node %s: %w", leader, err)
		}
		if err := g.wait(ctx, max(fo.Settle, time.Second)); err != nil {
			return err
		}
		gap, t := a.take(), g.swap()
		f := t.figures(time.Since(began), fo.MessageBytes)
		f.Gap, f.Partitions = float64(gap)/1e6, nil
		r.Rounds = append(r.Rounds, f)
		if err := fo.Restore(ctx, leader); err != nil {
			return fmt.Errorf("start node %s again: %w", leader, err)
		}
		if err := g.wait(ctx, fo.Settle); err != nil {
			return err
		}
	}
	return nil
}

// leaderOf names the node that leads partition 0.
func leaderOf(ctx context.Context, c *client.Client, topic string) (string, error) {
	for {
		got, err := c.GetTopic(ctx, &tapedeckv1.GetTopicRequest{Topic: topic})
		if err == nil && len(got.GetPartitions()) > 0 && got.GetPartitions()[0].GetLeader() != "" {
			return got.GetPartitions()[0].GetLeader(), nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return "", errors.Join(fmt.Errorf("partition 0 of %s has no leader", topic), err)
		}
	}
}

// verify reads the partition and holds it against the acks.
func (fo *Failover) verify(ctx context.Context, c *client.Client, a *arrivals, r *Result) error {
	seen := map[uint64]uint64{}
	twice, wrong := a.twice, 0
	for at := uint64(0); ; {
		got, err := c.Fetch(ctx, client.FetchRequest{Topic: fo.Topic, Offset: at, MaxBytes: 4 << 20})
		if err != nil {
			return fmt.Errorf("read back from offset %d: %w", at, err)
		}
		for _, m := range got.Messages {
			number := binary.LittleEndian.Uint64(m.Payload[8:])
			if _, again := seen[number]; again {
				twice++
			}
			seen[number] = m.Offset
		}
		if at = got.Next; at >= got.HighWatermark {
			break
		}
	}
	lost := 0
	for number, offset := range a.acked {
		if where, ok := seen[number]; !ok {
			lost++
		} else if where != offset {
			wrong++
		}
	}
	r.Notes = append(r.Notes, fmt.Sprintf("%d acknowledged, %d lost, %d there twice, %d at another offset",
		len(a.acked), lost, twice, wrong))
	if lost+twice+wrong > 0 {
		return fmt.Errorf("of %d acknowledged messages %d were lost, %d are there twice, %d at another offset",
			len(a.acked), lost, twice, wrong)
	}
	return nil
}
