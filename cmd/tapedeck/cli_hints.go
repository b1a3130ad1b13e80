package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"connectrpc.com/connect/v2"

	"github.com/tapedeck/tapedeck/client"
)

// explain adds to an error what a person can do about it.
func (f *clientFlags) explain(err error) error {
	var e *client.Error
	if !errors.As(err, &e) {
		return err
	}
	if e.Reason == client.ReasonNotSent {
		return fmt.Errorf("no node answers at %s (%w)\n  start a cluster with: tapedeck dev\n"+
			"  or name a node of a running one with --server or TAPEDECK_SERVER", strings.Join(f.Server, ", "), err)
	}
	if hint := hintFor(e); hint != "" {
		return fmt.Errorf("%w\n  %s", err, hint)
	}
	return err
}

// hintFor is what a person can do about an error; empty: nothing is known.
func hintFor(e *client.Error) string {
	switch {
	case strings.Contains(e.Message, "server gave HTTP response to HTTPS client"):
		return "nodes speak plain HTTP: write --server http://HOST:PORT; https is for a proxy in front of them"
	case e.Reason == client.ReasonNoLeader:
		return "see which nodes are there with: tapedeck cluster status"
	case e.Reason == client.ReasonFenced:
		return "somebody else goes on under this name; choose another"
	case e.Reason == client.ReasonOffsetTooOld, e.Reason == client.ReasonOffsetTooNew:
		return readableOffsets(e.Start, e.End)
	case strings.Contains(e.Message, "or pass force"):
		return "on the command line: --force"
	case e.Code == connect.CodeAlreadyExists && strings.HasPrefix(e.Message, "topic "):
		return "see how it is with: tapedeck topic get NAME; change it with: tapedeck topic update NAME"
	case e.Code == connect.CodeAlreadyExists && strings.HasPrefix(e.Message, "subscription "):
		return "see how it is with: tapedeck subscription get TOPIC/NAME; " +
			"change it with: tapedeck subscription update TOPIC/NAME"
	case e.Code == connect.CodeNotFound:
		return missingHint(e.Message)
	case e.Code == connect.CodeDeadlineExceeded:
		return "wait longer with --timeout, or see which nodes are there with: tapedeck cluster status"
	case e.RetryAfter > 0:
		return fmt.Sprintf("try again in %v", e.RetryAfter)
	}
	return ""
}

// readableOffsets says in words what [start, end) holds.
func readableOffsets(start, end uint64) string {
	switch {
	case start >= end:
		return fmt.Sprintf("there is no message to read; the next one gets offset %d", end)
	case start+1 == end:
		return fmt.Sprintf("there is one message, at offset %d; the next one gets offset %d", start, end)
	}
	return fmt.Sprintf("there are messages at offsets %d to %d; the next one gets offset %d", start, end-1, end)
}

// missing finds what a NOT_FOUND is about: its kind stands before its name. A
// message that names a subscription and its missing topic quotes the topic alone.
var missing = regexp.MustCompile(`\b(topic|subscription|node) "`)

// missingHint says how to find or make what is not there.
func missingHint(message string) string {
	found := missing.FindStringSubmatch(message)
	if found == nil {
		return ""
	}
	switch found[1] {
	case "topic":
		return "see what is there with: tapedeck topic list; create one with: tapedeck topic create NAME"
	case "subscription":
		return "see what is there with: tapedeck subscription list; " +
			"create one with: tapedeck subscription create TOPIC/NAME"
	}
	return "see what is there with: tapedeck node list"
}
