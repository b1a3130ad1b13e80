package main

import (
	"google.golang.org/protobuf/proto"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/checker"
	"github.com/tapedeck/tapedeck/core/model"
)

// ack notes one operation per partition named.
func (t *tap) ack(body []byte) (ending, error) {
	var req tapedeckv1.AckRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	var ops []checker.Op
	for _, u := range req.GetUpTo() {
		ops = append(ops, checker.Op{Ack: &checker.Ack{Subscription: req.GetSubscription(),
			Member: model.MemberID(req.GetMember()), Generation: model.Generation(req.GetGeneration()),
			Partition: model.Partition(u.GetPartition()), Next: model.Offset(u.GetNextOffset())}})
	}
	count := len(ops)
	first := t.r.invoke(t.id, ops)
	return func(answer []byte, e *model.Error) {
		var res tapedeckv1.AckResponse
		if e == nil {
			if err := proto.Unmarshal(answer, &res); err != nil || len(res.GetResults()) != count {
				t.r.complain("an ack of %d partitions was answered with %d results (%v)", count, len(res.GetResults()), err)
				e = &model.Error{Code: model.Unknown}
			}
		}
		for k := range count {
			mine, cursor := e, uint64(0)
			if e == nil {
				mine, cursor = statusFailure(res.GetResults()[k].GetError()), res.GetResults()[k].GetCursor()
			}
			t.r.answer(first+k, mine, func(op *checker.Op) { op.Ack.Cursor = model.Offset(cursor) })
		}
	}, nil
}

func (t *tap) seek(body []byte) (ending, error) {
	var req tapedeckv1.SeekRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	s := &checker.Seek{Subscription: req.GetSubscription()}
	switch to := req.GetTarget().(type) {
	case *tapedeckv1.SeekRequest_Earliest:
		s.To = checker.TargetEarliest
	case *tapedeckv1.SeekRequest_Latest:
		s.To = checker.TargetLatest
	case *tapedeckv1.SeekRequest_Time:
		s.To, s.Time = checker.TargetTime, model.Wall(to.Time.AsTime().UnixNano())
	case *tapedeckv1.SeekRequest_Offsets:
		s.To = checker.TargetOffsets
		for _, o := range to.Offsets.GetOffsets() {
			s.Offsets = append(s.Offsets,
				checker.Cursor{Partition: model.Partition(o.GetPartition()), Offset: model.Offset(o.GetOffset())})
		}
	}
	for _, p := range req.GetPartitions() {
		s.Partitions = append(s.Partitions, model.Partition(p))
	}
	return one(t, checker.Op{Seek: s}, func(op *checker.Op, res *tapedeckv1.SeekResponse) {
		op.Seek.Generation = model.Generation(res.GetGeneration())
		for _, c := range res.GetCursors() {
			op.Seek.Cursors = append(op.Seek.Cursors,
				checker.Cursor{Partition: model.Partition(c.GetPartition()), Offset: model.Offset(c.GetCursor())})
		}
	}), nil
}

func (t *tap) describe(body []byte) (ending, error) {
	var req tapedeckv1.GetSubscriptionRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	d := &checker.Describe{Subscription: req.GetSubscription()}
	return one(t, checker.Op{Describe: d}, func(op *checker.Op, res *tapedeckv1.GetSubscriptionResponse) {
		for _, p := range res.GetPartitions() {
			if p.GetError() == nil {
				op.Describe.Partitions = append(op.Describe.Partitions, checker.SubscriptionState{
					Partition: model.Partition(p.GetPartition()), Cursor: model.Offset(p.GetCursor()),
					HighWatermark: model.Offset(p.GetHighWatermark()), LogStart: model.Offset(p.GetLogStart()), Lag: p.GetLag()})
			}
		}
	}), nil
}

func (t *tap) describeTopic(body []byte) (ending, error) {
	var req tapedeckv1.GetTopicRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	d := &checker.DescribeTopic{Topic: req.GetTopic()}
	return one(t, checker.Op{DescribeTopic: d}, func(op *checker.Op, res *tapedeckv1.GetTopicResponse) {
		for _, p := range res.GetPartitions() {
			if p.GetError() == nil {
				op.DescribeTopic.Partitions = append(op.DescribeTopic.Partitions, checker.TopicState{
					Partition:     model.Partition(p.GetPartition()),
					HighWatermark: model.Offset(p.GetHighWatermark()), LogStart: model.Offset(p.GetLogStart())})
			}
		}
	}), nil
}

func (t *tap) openProducer(body []byte) (ending, error) {
	var req tapedeckv1.OpenProducerRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	o := &checker.OpenProducer{Name: req.GetName(), Fence: req.GetFence(), Topic: req.GetTopic()}
	return one(t, checker.Op{OpenProducer: o}, func(op *checker.Op, res *tapedeckv1.OpenProducerResponse) {
		op.OpenProducer.Producer, op.OpenProducer.Epoch = model.ProducerID(res.GetId()), model.Epoch(res.GetEpoch())
	}), nil
}

func (t *tap) createTopic(body []byte) (ending, error) {
	var req tapedeckv1.CreateTopicRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	c := &checker.Create{Topic: req.GetName(), Partitions: req.GetPartitions()}
	return one(t, checker.Op{Create: c}, func(*checker.Op, *tapedeckv1.CreateTopicResponse) {}), nil
}

func (t *tap) createSubscription(body []byte) (ending, error) {
	var req tapedeckv1.CreateSubscriptionRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	c := &checker.Create{Subscription: req.GetTopic() + "/" + req.GetName(), Start: checker.TargetEarliest}
	switch req.GetStart().(type) {
	case *tapedeckv1.CreateSubscriptionRequest_Latest:
		c.Start = checker.TargetLatest
	case *tapedeckv1.CreateSubscriptionRequest_Time:
		c.Start = checker.TargetTime
	}
	return one(t, checker.Op{Create: c}, func(*checker.Op, *tapedeckv1.CreateSubscriptionResponse) {}), nil
}
