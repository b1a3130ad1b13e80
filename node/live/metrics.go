package live

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/partition"
	"github.com/tapedeck/tapedeck/disk"
	"github.com/tapedeck/tapedeck/disk/record"
)

// metrics are one node's. Names begin with tapedeck_; times are in seconds.
type metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	latency  *prometheus.HistogramVec

	journalSyncs *prometheus.HistogramVec
	journalBytes prometheus.Counter
	syncSeconds  prometheus.Observer
}

func newMetrics(id model.NodeID) *metrics {
	registry := prometheus.NewRegistry()
	reg := prometheus.WrapRegistererWith(prometheus.Labels{"node": string(id)}, registry)
	m := &metrics{
		registry: registry,
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tapedeck_requests_total", Help: "Client calls that ended.",
		}, []string{"procedure", "code"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tapedeck_request_seconds", Help: "Time client calls took, long-polls included.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, []string{"procedure"}),
		journalSyncs: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tapedeck_journal_sync_seconds", Help: "Time the journal's syncs took; its count is that of syncs.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}, nil),
		journalBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tapedeck_journal_bytes_total", Help: "Bytes appended to the journal.",
		}),
	}
	m.syncSeconds = m.journalSyncs.WithLabelValues()
	reg.MustRegister(m.calls, m.latency, m.journalSyncs, m.journalBytes,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// watch adds what is read from a running node.
func (m *metrics) watch(n *Node) {
	reg := prometheus.WrapRegistererWith(prometheus.Labels{"node": string(n.cfg.ID)}, m.registry)
	gauge := func(name, help string, read func() float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
	}
	counter := func(name, help string, read func() float64) {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, read))
	}
	gauge("tapedeck_requests_bytes", "Bytes of the requests of calls under way.",
		func() float64 { return float64(n.taken.Load()) })
	gauge("tapedeck_shard_inbox_requests", "Requests that wait for the shard.",
		func() float64 { return float64(n.loop.requests.Load()) })
	gauge("tapedeck_shard_inbox_packet_bytes", "Bytes of peers' packets that wait for the shard.",
		func() float64 { return float64(n.loop.packetBytes.Load()) })
	gauge("tapedeck_shard_requests", "Requests under way in the shard.",
		func() float64 { return float64(n.loop.pending.Load()) })
	counter("tapedeck_shard_steps_total", "Events the shard took up.",
		func() float64 { return float64(n.loop.steps.Load()) })
	counter("tapedeck_shard_packets_dropped_total", "Peers' packets dropped because too much was waiting.",
		func() float64 { return float64(n.loop.dropped.Load()) })
	reg.MustRegister(watermarks{n.loop}, loads{n.loop})
	reg.MustRegister(queues{n})
}

var queueHelp = prometheus.NewDesc("tapedeck_peer_queue_bytes", "Bytes that wait to be sent to a peer.",
	[]string{"peer"}, nil)

// queues describes what waits for each peer.
type queues struct{ node *Node }

// Describe implements prometheus.Collector.
func (q queues) Describe(to chan<- *prometheus.Desc) { to <- queueHelp }

// Collect implements prometheus.Collector.
func (q queues) Collect(to chan<- prometheus.Metric) {
	for _, p := range q.node.net.Peers() {
		to <- prometheus.MustNewConstMetric(queueHelp, prometheus.GaugeValue, float64(q.node.net.Queued(p)), string(p))
	}
}

// maxWatermarks bounds the partitions described one by one in metrics.
const maxWatermarks = 1000

var watermarkHelp = prometheus.NewDesc("tapedeck_high_watermark",
	"Exclusive end of what can be read of a partition, as its replica here has applied it.",
	[]string{"topic", "partition"}, nil)

// watermarks describes the partitions that have a replica here.
type watermarks struct{ loop *loop }

// Describe implements prometheus.Collector.
func (w watermarks) Describe(to chan<- *prometheus.Desc) { to <- watermarkHelp }

// Collect implements prometheus.Collector.
func (w watermarks) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var found []prometheus.Metric
	ok := w.loop.inspect(ctx, func() {
		s := w.loop.host.Shard()
		catalog := s.Catalog()
		if catalog == nil {
			return
		}
		for _, id := range s.Replicas() {
			machine, isPartition := s.Replica(id).Machine().(*partition.Machine)
			if !isPartition || len(found) == maxWatermarks {
				continue
			}
			g := s.Replica(id).Group()
			topic := fmt.Sprint(g.Topic)
			if t, known := catalog.TopicByID(g.Topic); known {
				topic = t.Name
			}
			found = append(found, prometheus.MustNewConstMetric(watermarkHelp, prometheus.GaugeValue,
				float64(machine.HighWatermark()), topic, fmt.Sprint(g.Partition)))
		}
	})
	if !ok {
		return
	}
	for _, m := range found {
		to <- m
	}
}

// loadMetrics are read from core.Load.
var loadMetrics = []struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(l *core.Load) float64
}{
	{prometheus.NewDesc("tapedeck_segment_damaged_total", "Stored batches found damaged.", nil, nil),
		prometheus.CounterValue, func(l *core.Load) float64 { return float64(l.Damaged) }},
	{prometheus.NewDesc("tapedeck_segment_repaired_total", "… which another replica's copy replaced.", nil, nil),
		prometheus.CounterValue, func(l *core.Load) float64 { return float64(l.Repaired) }},
	{prometheus.NewDesc("tapedeck_segment_unrepaired_total", "… which no other replica could give.", nil, nil),
		prometheus.CounterValue, func(l *core.Load) float64 { return float64(l.Unrepaired) }},
	{prometheus.NewDesc("tapedeck_scrubbed_bytes_total", "Stored bytes read over for damage.", nil, nil),
		prometheus.CounterValue, func(l *core.Load) float64 { return float64(l.Scrubbed) }},
	{prometheus.NewDesc("tapedeck_dead_letters_waiting",
		"Messages out of attempts whose dead-letter topic is gone or has not taken them for ten seconds, "+
			"of subscriptions coordinated here.", nil, nil),
		prometheus.GaugeValue, func(l *core.Load) float64 { return float64(l.DeadLetters) }},
	{prometheus.NewDesc("tapedeck_disk_low", "1 while free space is so low that publishes are refused.", nil, nil),
		prometheus.GaugeValue, func(l *core.Load) float64 {
			if l.DiskLow {
				return 1
			}
			return 0
		}},
}

// loads describes what the shard counts.
type loads struct{ loop *loop }

// Describe implements prometheus.Collector.
func (v loads) Describe(to chan<- *prometheus.Desc) {
	for _, m := range loadMetrics {
		to <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (v loads) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var l core.Load
	if !v.loop.inspect(ctx, func() { l = v.loop.host.Shard().Load() }) {
		return
	}
	for _, m := range loadMetrics {
		to <- prometheus.MustNewConstMetric(m.desc, m.kind, m.read(&l))
	}
}

func (m *metrics) observe(procedure string, err error, took time.Duration) {
	code := "ok"
	if err != nil {
		code = connect.CodeOf(err).String()
	}
	m.calls.WithLabelValues(procedure, code).Inc()
	m.latency.WithLabelValues(procedure).Observe(took.Seconds())
}

// journal counts what an engine's journal does.
func (m *metrics) journal(e record.Engine) record.Engine {
	if e == nil {
		return nil
	}
	return countedEngine{e, m}
}

type countedEngine struct {
	record.Engine
	metrics *metrics
}

// Open implements record.Engine.
func (e countedEngine) Open() (disk.Journal, error) {
	j, err := e.Engine.Open()
	if err != nil {
		return nil, err
	}
	return countedJournal{j, e.metrics}, nil
}

type countedJournal struct {
	disk.Journal
	metrics *metrics
}

// Append implements disk.Journal.
func (j countedJournal) Append(frame []byte) error {
	j.metrics.journalBytes.Add(float64(len(frame)))
	return j.Journal.Append(frame)
}

// Sync implements disk.Journal.
func (j countedJournal) Sync() error {
	began := time.Now()
	err := j.Journal.Sync()
	j.metrics.syncSeconds.Observe(time.Since(began).Seconds())
	return err
}
