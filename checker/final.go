package checker

import "github.com/tapedeck/tapedeck/core/model"

// Final is the state at rest, read after the last operation: faults healed,
// nothing in flight.
type Final struct {
	Logs          []FinalLog
	Subscriptions []FinalSubscription
	// Drained says that every subscription was pulled and acked to its end, so
	// that a message never delivered counts as unseen.
	Drained bool
}

// FinalLog is one partition's whole log, [LogStart, HighWatermark).
type FinalLog struct {
	Topic         string          `json:"topic"`
	Partition     model.Partition `json:"partition"`
	LogStart      model.Offset    `json:"log_start"`
	HighWatermark model.Offset    `json:"high_watermark"`
	Messages      []LogMessage    `json:"messages,omitempty"` // by offset
}

// LogMessage is one message of a final log.
type LogMessage struct {
	Offset     model.Offset `json:"offset"`
	Payload    uint64       `json:"payload"`
	AppendTime model.Wall   `json:"append_time,omitempty"` // 0: not told
	// Producer, epoch and sequence as stored; producer 0: none or not told.
	Producer model.ProducerID `json:"producer,omitempty"`
	Epoch    model.Epoch      `json:"epoch,omitempty"`
	Sequence model.Sequence   `json:"sequence,omitempty"`
}

// FinalSubscription is one subscription's cursors.
type FinalSubscription struct {
	Subscription string   `json:"subscription"`
	Partitions   []Cursor `json:"partitions,omitempty"`
}
