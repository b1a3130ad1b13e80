package bench

import (
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Bounds of what a histogram tells apart, in nanoseconds; beyond it counts as the bound.
const (
	lowest  = int64(time.Microsecond)
	highest = int64(10 * time.Minute)
	digits  = 3
)

// NewHistogram makes a histogram of nanoseconds, three digits exact.
func NewHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(lowest, highest, digits) }

// Note counts a latency.
func Note(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(int64(d), lowest), highest)) // it is within bounds
}

// Latency is a distribution, in milliseconds.
type Latency struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// LatencyOf reads a histogram; nil if nothing was counted.
func LatencyOf(h *hdrhistogram.Histogram) *Latency {
	if h.TotalCount() == 0 {
		return nil
	}
	ms := func(ns int64) float64 { return float64(ns) / 1e6 }
	return &Latency{
		P50: ms(h.ValueAtQuantile(50)), P90: ms(h.ValueAtQuantile(90)), P99: ms(h.ValueAtQuantile(99)),
		P999: ms(h.ValueAtQuantile(99.9)), Max: ms(h.Max()),
	}
}

// Figures are what one round gave, or the median of several.
type Figures struct {
	Seconds   float64  `json:"seconds"`
	Messages  float64  `json:"messages"`
	PerSecond float64  `json:"perSecond"`
	MBps      float64  `json:"mbPerSecond"`
	Ack       *Latency `json:"ackMs,omitempty"`
	EndToEnd  *Latency `json:"endToEndMs,omitempty"`
	Errors    float64  `json:"errors"`
	// Core-seconds used by the nodes and by this process.
	NodesCPU       float64 `json:"nodesCoreSeconds,omitempty"`
	ClientCPU      float64 `json:"clientCoreSeconds,omitempty"`
	PerCoreSecond  float64 `json:"messagesPerCoreSecond,omitempty"`     // of nodes and client
	PerNodesSecond float64 `json:"messagesPerNodeCoreSecond,omitempty"` // of the nodes alone
	// WrittenPerAcked is bytes written by all nodes per byte of payload acknowledged.
	WrittenPerAcked float64   `json:"writtenPerAckedByte,omitempty"`
	Partitions      []float64 `json:"perSecondByPartition,omitempty"`
	// Gap is the longest time without an ack, in milliseconds: failover only.
	Gap float64 `json:"gapMs,omitempty"`
}

// Result is one line of a table.
type Result struct {
	Name     string    `json:"name"`
	Kind     string    `json:"kind"`
	Settings any       `json:"settings"`
	Rounds   []Figures `json:"rounds"`
	Median   Figures   `json:"median"`
	Least    float64   `json:"leastPerSecond"` // of the rounds
	Most     float64   `json:"mostPerSecond"`
	Notes    []string  `json:"notes,omitempty"`
	// Ratios to other lines of the same run, by name; set by whoever ran both.
	RatioPhysical   float64 `json:"ratio_physical,omitempty"`
	RatioNATSAlways float64 `json:"ratio_nats_always,omitempty"`
}

// Summarize fills in median and spread.
func (r *Result) Summarize() {
	if len(r.Rounds) == 0 {
		return
	}
	r.Median = MedianOf(r.Rounds)
	r.Least, r.Most = r.Rounds[0].PerSecond, r.Rounds[0].PerSecond
	for _, f := range r.Rounds {
		r.Least, r.Most = min(r.Least, f.PerSecond), max(r.Most, f.PerSecond)
	}
}

// MedianOf is the median of each figure by itself.
func MedianOf(rounds []Figures) Figures {
	of := func(read func(*Figures) float64) float64 {
		values := make([]float64, len(rounds))
		for i := range rounds {
			values[i] = read(&rounds[i])
		}
		return Median(values)
	}
	out := Figures{
		Seconds:         of(func(f *Figures) float64 { return f.Seconds }),
		Messages:        of(func(f *Figures) float64 { return f.Messages }),
		PerSecond:       of(func(f *Figures) float64 { return f.PerSecond }),
		MBps:            of(func(f *Figures) float64 { return f.MBps }),
		Errors:          of(func(f *Figures) float64 { return f.Errors }),
		NodesCPU:        of(func(f *Figures) float64 { return f.NodesCPU }),
		ClientCPU:       of(func(f *Figures) float64 { return f.ClientCPU }),
		PerCoreSecond:   of(func(f *Figures) float64 { return f.PerCoreSecond }),
		PerNodesSecond:  of(func(f *Figures) float64 { return f.PerNodesSecond }),
		WrittenPerAcked: of(func(f *Figures) float64 { return f.WrittenPerAcked }),
		Gap:             of(func(f *Figures) float64 { return f.Gap }),
		Ack:             medianLatency(rounds, func(f *Figures) *Latency { return f.Ack }),
		EndToEnd:        medianLatency(rounds, func(f *Figures) *Latency { return f.EndToEnd }),
	}
	for p := range rounds[0].Partitions {
		out.Partitions = append(out.Partitions, of(func(f *Figures) float64 {
			if p >= len(f.Partitions) {
				return 0
			}
			return f.Partitions[p]
		}))
	}
	return out
}

func medianLatency(rounds []Figures, pick func(*Figures) *Latency) *Latency {
	var some []*Latency
	for i := range rounds {
		if l := pick(&rounds[i]); l != nil {
			some = append(some, l)
		}
	}
	if len(some) == 0 {
		return nil
	}
	of := func(read func(*Latency) float64) float64 {
		values := make([]float64, len(some))
		for i, l := range some {
			values[i] = read(l)
		}
		return Median(values)
	}
	return &Latency{
		P50:  of(func(l *Latency) float64 { return l.P50 }),
		P90:  of(func(l *Latency) float64 { return l.P90 }),
		P99:  of(func(l *Latency) float64 { return l.P99 }),
		P999: of(func(l *Latency) float64 { return l.P999 }),
		Max:  of(func(l *Latency) float64 { return l.Max }),
	}
}

// Median is the middle value, or the mean of the two in the middle; 0 of nothing.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}
