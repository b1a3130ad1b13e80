package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/checker"
	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/model"
)

// recorder writes what clients call and get into a history, attempt by attempt,
// as it goes over the wire: it sits below the client as an http.RoundTripper.
type recorder struct {
	began time.Time

	mu      sync.Mutex
	history checker.History
	reasons map[model.Reason]int // of the errors answered
	strange error                // something that cannot be recorded was seen
	clients checker.ClientID
}

func newRecorder() *recorder {
	return &recorder{began: time.Now(), reasons: map[model.Reason]int{}}
}

// client makes the HTTP client of one recorded client.
func (r *recorder) client() *http.Client {
	r.mu.Lock()
	r.clients++
	id := r.clients
	r.mu.Unlock()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Client{Transport: &tap{r: r, id: id, next: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		MaxIdleConnsPerHost: 64, IdleConnTimeout: 30 * time.Second, DisableCompression: true, Protocols: protocols,
	}}}
}

// elapsed is the history's clock.
func (r *recorder) elapsed() checker.Moment { return checker.Moment(time.Since(r.began)) }

// invoke notes calls that begin now.
func (r *recorder) invoke(client checker.ClientID, ops []checker.Op) (first int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.elapsed()
	for i := range ops {
		ops[i].Client, ops[i].Call = client, now
		n := r.history.Invoke(ops[i])
		if i == 0 {
			first = n
		}
	}
	return first
}

// answer ends call number i; fill completes it under the lock.
func (r *recorder) answer(i int, e *model.Error, fill func(op *checker.Op)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out, reason := checker.OutcomeOf(e)
	if reason != "" {
		r.reasons[reason]++
	}
	op := r.history.Answer(i, r.elapsed(), out, reason)
	if e == nil && fill != nil {
		fill(op)
	}
}

func (r *recorder) complain(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.strange == nil {
		r.strange = fmt.Errorf(format, args...)
	}
}

// tap records one client's calls.
type tap struct {
	r    *recorder
	id   checker.ClientID
	next http.RoundTripper
}

// CloseIdleConnections lets http.Client close what is idle.
func (t *tap) CloseIdleConnections() { t.next.(*http.Transport).CloseIdleConnections() }

// RoundTrip implements http.RoundTripper.
func (t *tap) RoundTrip(req *http.Request) (*http.Response, error) {
	procedure := req.URL.Path[strings.LastIndexByte(req.URL.Path, '/')+1:]
	note := notes[procedure]
	if note == nil {
		return t.next.RoundTrip(req)
	}
	if kind := req.Header.Get("Content-Type"); kind != "application/proto" {
		t.r.complain("a %s of the type %s went by, which cannot be recorded", procedure, kind)
		return t.next.RoundTrip(req)
	}
	body, err := io.ReadAll(req.Body)
	_ = req.Body.Close()
	if err != nil {
		return nil, err
	}
	sent := req.Clone(req.Context())
	sent.Body = io.NopCloser(bytes.NewReader(body))
	sent.ContentLength = int64(len(body))
	sent.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	end, err := note(t, body)
	if err != nil {
		t.r.complain("%s: %v", procedure, err)
		return t.next.RoundTrip(sent)
	}
	res, err := t.next.RoundTrip(sent)
	if err != nil {
		lost := &model.Error{Code: model.Unknown}
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" { // no connection was made
			lost = &model.Error{Code: model.Unavailable, Reason: "NOT_SENT"}
		}
		end(nil, lost)
		return nil, err
	}
	answer, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		end(nil, &model.Error{Code: model.Unknown})
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(answer))
	if res.StatusCode == http.StatusOK {
		end(answer, nil)
	} else {
		end(nil, readFailure(answer))
	}
	return res, nil
}

// codes are the error codes as Connect writes them.
var codes = []string{"ok", "canceled", "unknown", "invalid_argument", "deadline_exceeded", "not_found",
	"already_exists", "permission_denied", "resource_exhausted", "failed_precondition", "aborted", "out_of_range",
	"unimplemented", "internal", "unavailable", "data_loss", "unauthenticated"}

func readFailure(answer []byte) *model.Error {
	var e struct {
		Code    string
		Details []struct{ Type, Value string }
	}
	f := &model.Error{Code: model.Unknown}
	if json.Unmarshal(answer, &e) != nil {
		return f
	}
	if i := slices.Index(codes, e.Code); i > 0 {
		f.Code = model.Code(i)
	}
	for _, d := range e.Details {
		var info errdetails.ErrorInfo
		raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(d.Value, "="))
		if d.Type == "google.rpc.ErrorInfo" && err == nil && proto.Unmarshal(raw, &info) == nil {
			f.Reason = model.Reason(info.GetReason())
		}
	}
	return f
}

func statusFailure(s *status.Status) *model.Error {
	if s == nil || s.GetCode() == 0 {
		return nil
	}
	f := &model.Error{Code: model.Code(s.GetCode())}
	for _, d := range s.GetDetails() {
		var info errdetails.ErrorInfo
		if d.UnmarshalTo(&info) == nil {
			f.Reason = model.Reason(info.GetReason())
		}
	}
	return f
}

// ending notes how a call ended: by an answer, or not.
type ending func(answer []byte, e *model.Error)

// notes say how each procedure is noted. Those that no checker judges are missing.
var notes = map[string]func(t *tap, body []byte) (ending, error){
	"PublishBatch":       (*tap).publish,
	"Fetch":              (*tap).fetch,
	"Pull":               (*tap).pull,
	"Ack":                (*tap).ack,
	"Seek":               (*tap).seek,
	"GetSubscription":    (*tap).describe,
	"GetTopic":           (*tap).describeTopic,
	"OpenProducer":       (*tap).openProducer,
	"CreateTopic":        (*tap).createTopic,
	"CreateSubscription": (*tap).createSubscription,
	"Publish":            (*tap).never,
	"StreamPull":         (*tap).never,
	"Nack":               (*tap).never,
}

func (t *tap) never([]byte) (ending, error) {
	return nil, errors.New("no client here makes that call, and it is not recorded")
}

// one notes a call that is one operation.
func one[R any, M interface {
	*R
	proto.Message
}](t *tap, op checker.Op, fill func(op *checker.Op, answer M)) ending {
	i := t.r.invoke(t.id, []checker.Op{op})
	return func(answer []byte, e *model.Error) {
		var res R
		if e == nil {
			if err := proto.Unmarshal(answer, M(&res)); err != nil {
				t.r.complain("an answer cannot be read: %v", err)
				e = &model.Error{Code: model.Unknown}
			}
		}
		t.r.answer(i, e, func(op *checker.Op) { fill(op, &res) })
	}
}

func payloadID(payload []byte) uint64 { return checker.PayloadID(payload) }

func (t *tap) publish(body []byte) (ending, error) {
	var req tapedeckv1.PublishBatchRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	v, err := batch.Parse(req.GetBatch())
	if err != nil {
		return nil, err
	}
	messages, err := v.Messages(nil)
	if err != nil {
		return nil, err
	}
	p := &checker.Publish{Topic: req.GetTopic(), Partition: model.Partition(req.GetPartition()),
		Producer: v.Producer(), Epoch: v.Epoch(), Sequence: v.Sequence()}
	for i := range messages {
		p.Messages = append(p.Messages,
			checker.Published{Key: string(messages[i].Key), Payload: payloadID(messages[i].Payload)})
	}
	return one(t, checker.Op{Publish: p}, func(op *checker.Op, res *tapedeckv1.PublishBatchResponse) {
		op.Publish.Offset, op.Publish.Duplicate = model.Offset(res.GetBase()), res.GetDuplicate()
	}), nil
}

// messagesOf lists the messages of [from, to) in a run.
func messagesOf(x *tapedeckv1.BatchRange, partition model.Partition) (out []checker.Message, err error) {
	err = eachIn(x, func(v batch.View, i int, o model.Offset, b *batch.Message) {
		m := checker.Message{Partition: partition, Offset: o, Payload: payloadID(b.Payload), AppendTime: v.AppendTime()}
		if uint64(o) == x.GetFrom() {
			m.Attempt = x.GetAttempt()
		}
		out = append(out, m)
	})
	return out, err
}

// eachIn gives each message of [from, to) in a run: its batch and place therein, its offset.
func eachIn(x *tapedeckv1.BatchRange, do func(batch.View, int, model.Offset, *batch.Message)) error {
	views, err := batch.Split(x.GetRun())
	if err != nil {
		return err
	}
	for _, v := range views {
		if v, err = batch.Parse(v); err != nil {
			return err
		}
		messages, err := v.Messages(nil)
		if err != nil {
			return err
		}
		for i := range messages {
			if o := v.Base() + model.Offset(i); uint64(o) >= x.GetFrom() && uint64(o) < x.GetTo() {
				do(v, i, o, &messages[i])
			}
		}
	}
	return nil
}

// ranged adds the messages of ranges to a list.
func (t *tap) ranged(list *[]checker.Message, ranges []*tapedeckv1.BatchRange, partitions bool) {
	for _, x := range ranges {
		p := model.Partition(0)
		if partitions {
			p = model.Partition(x.GetPartition())
		}
		messages, err := messagesOf(x, p)
		if err != nil && t.r.strange == nil { // the lock is held
			t.r.strange = fmt.Errorf("a run of batches cannot be read: %w", err)
		}
		*list = append(*list, messages...)
	}
}

func (t *tap) fetch(body []byte) (ending, error) {
	var req tapedeckv1.FetchRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	f := &checker.Fetch{Topic: req.GetTopic(), Partition: model.Partition(req.GetPartition()),
		Offset: model.Offset(req.GetOffset())}
	return one(t, checker.Op{Fetch: f}, func(op *checker.Op, res *tapedeckv1.FetchResponse) {
		t.ranged(&op.Fetch.Messages, res.GetRanges(), false)
		op.Fetch.HighWatermark, op.Fetch.LogStart = model.Offset(res.GetHighWatermark()), model.Offset(res.GetLogStart())
	}), nil
}

func (t *tap) pull(body []byte) (ending, error) {
	var req tapedeckv1.PullRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	p := &checker.Pull{Subscription: req.GetSubscription(), Member: model.MemberID(req.GetMember()),
		Sequence: req.GetPullSequence()}
	return one(t, checker.Op{Pull: p}, func(op *checker.Op, res *tapedeckv1.PullResponse) {
		op.Pull.Member, op.Pull.Generation = model.MemberID(res.GetMember()), model.Generation(res.GetGeneration())
		t.ranged(&op.Pull.Messages, res.GetRanges(), true)
		for _, s := range res.GetSkipped() {
			op.Pull.Skipped = append(op.Pull.Skipped, checker.Range{Partition: model.Partition(s.GetPartition()),
				From: model.Offset(s.GetFrom()), To: model.Offset(s.GetTo())})
		}
	}), nil
}
