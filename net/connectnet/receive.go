package connectnet

import (
	"context"
	"errors"
	"io"

	"connectrpc.com/connect/v2"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/api/tapedeck/v1/tapedeckv1connect"
	"github.com/tapedeck/tapedeck/core/model"
)

// receiver is the service that peers call.
type receiver struct{ net *Net }

// Stream takes packets until the peer leaves, the stream breaks or this node closes.
func (r receiver) Stream(
	ctx context.Context, s tapedeckv1connect.PeerServiceStreamServerStream,
) (*tapedeckv1.StreamResponse, error) {
	hello, err := s.Receive()
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument,
			"the stream ended before it said whose it is").WithCause(err)
	}
	from, err := r.admit(hello)
	if err != nil {
		return nil, err
	}
	defer r.net.cfg.Down(from)
	err = r.receive(s, from)
	switch {
	case errors.Is(err, io.EOF):
		return &tapedeckv1.StreamResponse{}, nil
	case r.net.ctx.Err() != nil:
		return nil, connect.Errorf(connect.CodeUnavailable, "node %s is stopping", r.net.cfg.Self)
	case ctx.Err() != nil:
		return nil, connect.NewError(connect.CodeCanceled, "the peer left")
	}
	return nil, connect.NewError(connect.CodeUnavailable, "the stream broke").WithCause(err)
}

// admit judges a stream's first frame.
func (r receiver) admit(hello *tapedeckv1.StreamRequest) (model.NodeID, error) {
	from, to := model.NodeID(hello.GetFrom()), model.NodeID(hello.GetTo())
	if to != r.net.cfg.Self {
		return "", connect.Errorf(connect.CodeFailedPrecondition,
			"this is node %s, but %s takes its address for %s's: check --peers on both", r.net.cfg.Self, from, to)
	}
	// A node not heard of before may want to join; whether it may is the shard's
	// decision.
	if err := model.ValidateName("from", string(from)); err != nil || from == to {
		return "", connect.Errorf(connect.CodePermissionDenied, "%q cannot be the name of a peer of node %s", from, to)
	}
	return from, nil
}

func (r receiver) receive(s tapedeckv1connect.PeerServiceStreamServerStream, from model.NodeID) error {
	for r.net.ctx.Err() == nil {
		frame, err := s.Receive()
		if err != nil {
			return err
		}
		for _, packet := range frame.GetPackets() {
			r.net.cfg.Deliver(from, packet)
		}
	}
	return r.net.ctx.Err()
}
