package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/client"
)

// Load says what is published, and for how long it is looked at.
type Load struct {
	Topic      string `json:"topic"`
	Partitions uint32 `json:"partitions"`
	Replicas   uint32 `json:"replicas"`

	MessageBytes  int           `json:"messageBytes"`
	BatchBytes    int           `json:"batchBytes"`    // at which a batch leaves; 0: the client's own limit
	BatchMessages int           `json:"batchMessages"` // the same, in messages
	Linger        time.Duration `json:"lingerNs"`      // negative: none
	InFlight      int           `json:"inFlight"`      // requests per partition and producer; 0: the client's own
	Window        int           `json:"window"`        // messages without a result, all publishers together
	Compression   string        `json:"compression,omitempty"`

	Publishers int     `json:"publishers"` // who hand messages over
	Producers  int     `json:"producers"`  // of the client, shared by the publishers
	Keys       int     `json:"keys"`       // different ones; 0: no keys
	Zipf       float64 `json:"zipf"`       // exponent above 1 of the keys' distribution; 0: all alike
	Rate       float64 `json:"rate"`       // messages per second, all publishers together; 0: as fast as possible

	Warmup   time.Duration `json:"warmupNs"`
	Duration time.Duration `json:"durationNs"` // of a round
	Rounds   int           `json:"rounds"`
}

// maxWindow bounds the memory of a load.
const maxWindow = 1 << 20

func (l *Load) check() error {
	if l.Publishers == 0 {
		l.Publishers = 1
	}
	if l.Producers == 0 {
		l.Producers = 1
	}
	l.Producers = min(l.Producers, l.Publishers)
	if l.Window == 0 {
		l.Window = 4096
	}
	l.Window = max(l.Window, l.Publishers)
	switch {
	case l.Topic == "":
		return errors.New("name a topic")
	case l.MessageBytes < 16:
		return fmt.Errorf("a message of %d bytes is too small: at least 16 are needed to tell messages apart", l.MessageBytes)
	case l.Window > maxWindow:
		return fmt.Errorf("a window of %d messages is too large; at most %d", l.Window, maxWindow)
	case l.Rounds < 1 || l.Duration <= 0:
		return errors.New("at least one round of some duration is needed")
	case l.Zipf != 0 && (l.Zipf <= 1 || l.Keys < 2):
		return errors.New("a Zipf distribution needs an exponent above 1 and at least 2 keys")
	case l.Rate < 0:
		return errors.New("the rate is negative")
	}
	return nil
}

func (l *Load) producerOptions() ([]client.ProducerOption, error) {
	var opts []client.ProducerOption
	if l.Linger != 0 {
		opts = append(opts, client.WithLinger(l.Linger))
	}
	if l.BatchBytes > 0 || l.BatchMessages > 0 {
		opts = append(opts, client.WithBatchLimits(l.BatchBytes, l.BatchMessages))
	}
	if l.InFlight > 0 {
		opts = append(opts, client.WithInFlight(l.InFlight))
	}
	switch l.Compression {
	case "", "none":
	case "zstd":
		opts = append(opts, client.WithCompression(client.Zstd))
	case "s2":
		opts = append(opts, client.WithCompression(client.S2))
	default:
		return nil, fmt.Errorf("compression %q is none of none, zstd, s2", l.Compression)
	}
	pending := 2 * l.Window
	return append(opts, client.WithPendingLimits(pending*(l.MessageBytes+256), pending)), nil
}

// MakeTopic makes the topic if it is not there, and says how many partitions it has.
func MakeTopic(ctx context.Context, c *client.Client, topic string, partitions, replicas uint32) (uint32, error) {
	got, err := c.GetTopic(ctx, &tapedeckv1.GetTopicRequest{Topic: topic})
	if err == nil {
		return uint32(len(got.GetPartitions())), nil
	}
	_, err = c.CreateTopic(ctx, &tapedeckv1.CreateTopicRequest{
		Name: topic, Partitions: partitions, Replicas: replicas,
		RetentionTime: durationpb.New(24 * time.Hour),
	})
	if err != nil {
		return 0, fmt.Errorf("make topic %s: %w", topic, err)
	}
	return partitions, nil
}

// RemoveTopic deletes a topic, as far as that can be done.
func RemoveTopic(ctx context.Context, c *client.Client, topic string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = c.DeleteTopic(ctx, &tapedeckv1.DeleteTopicRequest{Topic: topic})
}
