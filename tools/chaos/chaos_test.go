package main

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/api/tapedeck/v1/tapedeckv1connect"
	"github.com/tapedeck/tapedeck/checker"
	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/model"
)

// answer serves one answer to every call.
func answer(t *testing.T, status int, kind string, body []byte) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = w.Write(body)
	}))
	t.Cleanup(s.Close)
	return s
}

// publishOnce publishes a batch of two messages through the recorder.
func publishOnce(t *testing.T, r *recorder, url string) (checker.Op, error) {
	c := connect.NewClient(connecthttp.NewTransport(r.client(), url, connecthttp.WithCompressors()))
	v := batch.Encode([]batch.Message{{Key: []byte("k"), Payload: []byte("a")}, {Key: []byte("k"), Payload: []byte("b")}},
		batch.Options{Producer: 7, Epoch: 2, Sequence: 40})
	_, err := tapedeckv1connect.NewPubSubServiceClient(c).PublishBatch(t.Context(),
		&tapedeckv1.PublishBatchRequest{Topic: "orders", Partition: 3, Batch: v})
	if r.strange != nil || len(r.history.Ops) != 1 {
		t.Fatalf("%d operations were noted (%v)", len(r.history.Ops), r.strange)
	}
	return r.history.Ops[0], err
}

func TestAPublishIsNotedAsItWent(t *testing.T) {
	body, err := proto.Marshal(&tapedeckv1.PublishBatchResponse{Base: 12, Duplicate: true})
	if err != nil {
		t.Fatal(err)
	}
	op, err := publishOnce(t, newRecorder(), answer(t, http.StatusOK, "application/proto", body).URL)
	p := op.Publish
	if err != nil || op.Outcome != checker.OutcomeOK || p.Offset != 12 || !p.Duplicate || p.Partition != 3 ||
		p.Producer != 7 || p.Epoch != 2 || p.Sequence != 40 || len(p.Messages) != 2 ||
		p.Messages[1].Payload != payloadID([]byte("b")) || p.Messages[1].Key != "k" {
		t.Fatalf("noted %+v %+v (%v)", op, p, err)
	}
}

func TestARefusalIsToldFromAnUnknownOutcome(t *testing.T) {
	for reason, want := range map[model.Reason]checker.Outcome{
		model.ReasonNoLeader: checker.OutcomeRefused, model.ReasonUnknownOutcome: checker.OutcomeUnknown,
		"": checker.OutcomeUnknown,
	} {
		s := httptest.NewServer(failing(t, reason))
		t.Cleanup(s.Close)
		op, err := publishOnce(t, newRecorder(), s.URL)
		if err == nil || op.Outcome != want || op.Reason != reason {
			t.Errorf("UNAVAILABLE with the reason %q is noted as %s %q (%v)", reason, op.Outcome, op.Reason, err)
		}
	}
	s := answer(t, http.StatusOK, "application/proto", nil)
	s.Close()
	if op, _ := publishOnce(t, newRecorder(), s.URL); op.Outcome != checker.OutcomeRefused {
		t.Errorf("a call that found nobody is noted as %s", op.Outcome)
	}
}

// failing serves PubSubService as a broker does that refuses everything.
func failing(t *testing.T, reason model.Reason) http.Handler {
	err := connect.NewError(connect.CodeUnavailable, "not now")
	if reason != "" {
		detail, derr := connectproto.NewErrorDetail(&errdetails.ErrorInfo{Reason: string(reason), Domain: "tapedeck"})
		if derr != nil {
			t.Fatal(derr)
		}
		err = err.WithDetail(detail)
	}
	mux, server := http.NewServeMux(), connect.NewServer()
	tapedeckv1connect.RegisterPubSubServiceHandler(server, refusing{err: err})
	connecthttp.Mount(mux, server)
	return mux
}

// refusing answers publishes with an error; nothing else is called.
type refusing struct {
	tapedeckv1connect.PubSubServiceHandler
	err error
}

// PublishBatch implements PubSubServiceHandler.
func (r refusing) PublishBatch(context.Context, *tapedeckv1.PublishBatchRequest,
) (*tapedeckv1.PublishBatchResponse, error) {
	return nil, r.err
}

func TestCopiesAreComparedWhereBothStart(t *testing.T) {
	at := func(o model.Offset, payload uint64) stored {
		return stored{LogMessage: checker.LogMessage{Offset: o, Payload: payload}}
	}
	a := []stored{at(1, 1), at(2, 2), at(3, 3)}
	for _, c := range []struct {
		b    []stored
		same bool
	}{
		{a, true}, {a[1:], true}, {a[:2], false}, {nil, false}, {[]stored{at(2, 2), at(3, 4)}, false},
	} {
		if _, same := sameWhereBoth(a, c.b); same != c.same {
			t.Errorf("%v and %v: same %v", a, c.b, same)
		}
		if _, same := sameWhereBoth(c.b, a); same != c.same {
			t.Errorf("%v and %v: same %v", c.b, a, same)
		}
	}
}

func TestAFlipChangesOneBitAndSparesTheJournalsTail(t *testing.T) {
	dir := t.TempDir()
	files := map[string]int{"journal/000001": spareTail, "journal/000002": spareTail, "LOCK": 100}
	for name, size := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 5 {
		if _, err := flipIn(dir, rng); err != nil {
			t.Fatal(err)
		}
	}
	for name := range files {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		changed := 0
		for _, b := range content {
			if b != 0 {
				changed++
			}
		}
		if name == "journal/000001" != (changed > 0) {
			t.Errorf("%s has %d bytes changed", name, changed)
		}
	}
}
