package admin_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/admin"
	pb "example.org/rls/pkg/admin/adminpb"
	"example.org/rls/pkg/backends"
)

const allOfUser = `{"domain":"shop","rule":"shop.user","all_matching":true,"reason":"a test"`

func TestResetOfAllMatching(t *testing.T) {
	r := start(t, listening{})
	for i := range 250 {
		r.charge(fmt.Sprint("user", i), 4)
	}
	r.chargeEntry("route", "/cart", 4)
	got := r.ask("POST", "/v1/reset", allOfUser+`,"dry_run":true}`, bearer(writeToken))
	if want := `{"dry_run":true,"matched":250,"changed":0}`; got.text != want+"\n" {
		t.Errorf("dry run: got %d %s, want %s", got.code, got.text, want)
	}
	if r.remaining("user7") != 6.0 {
		t.Error("the dry run has changed a cell")
	}
	got = r.ask("POST", "/v1/reset", allOfUser+"}", bearer(writeToken))
	if want := `{"dry_run":false,"matched":250,"changed":250}`; got.text != want+"\n" {
		t.Errorf("got %d %s, want %s", got.code, got.text, want)
	}
	if r.remaining("user7") != 10.0 || r.remaining("user249") != 10.0 {
		t.Error("a cell was not reset")
	}
	route := r.ask("POST", "/v1/get", `{"domain":"shop","descriptors":[{"entries":[{"key":"route","value":"/cart"}]}]}`, bearer(readToken))
	if !strings.Contains(route.text, `"count":4,`) {
		t.Errorf("the cell of another rule has changed: %s", route.text)
	}
	if entry := r.lastAudited(); entry["rule"] != "shop.user" || entry["changed"] != 250.0 || entry["key"] != "" || entry["reason"] != "a test" {
		t.Errorf("audit: %v", entry)
	}
}

func TestResetOfAllMatchingAsStream(t *testing.T) {
	r := start(t, listening{})
	r.charge("ann", 4)
	got := r.ask("POST", "/v1/reset", allOfUser+"}", bearer(writeToken), with("Accept", "text/event-stream"))
	if want := `data: {"scanned":1,"matched":1,"changed":1,"done":{"dry_run":false,"matched":1,"changed":1}}` + "\n\n"; got.text != want {
		t.Errorf("got %s, want %s", got.text, want)
	}
	r.charge("ann", 4)
	stream, err := pb.NewAdminClient(r.dial(writeToken, insecure.NewCredentials())).ResetMatching(t.Context(), &pb.ResetRequest{Domain: "shop", Rule: "shop.user", AllMatching: true})
	if err != nil {
		t.Fatal(err)
	}
	last, err := stream.Recv()
	if err != nil || last.GetDone().GetMatched() != 1 {
		t.Errorf("got %v, %v", last, err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end", err)
	}
}

func TestResetOfAllMatchingThatCannotBe(t *testing.T) {
	plain := start(t, listening{change: func(o *admin.Options) { o.Limits = newLimits(t, struct{ backends.Store }{newStore(t)}, rules) }})
	got := plain.ask("POST", "/v1/reset", allOfUser+"}", bearer(writeToken))
	if message, _ := got.json["message"].(string); got.code != 501 || !strings.Contains(message, "cannot scan") {
		t.Errorf("a store that cannot scan: got %d %s", got.code, got.text)
	}
	r := start(t, listening{})
	for body, want := range map[string]int{
		strings.Replace(allOfUser, "shop.user", "shop.nobody", 1): 404,
		strings.Replace(allOfUser, `"shop"`, `"shopping"`, 1):     404,
		strings.Replace(allOfUser, "shop.user", "shop.vip", 1):    400, // unlimited
		strings.Replace(allOfUser, `"all_matching":true,`, "", 1): 400,
	} {
		for _, accept := range []string{"*/*", "text/event-stream"} {
			if got := r.ask("POST", "/v1/reset", body+"}", bearer(writeToken), with("Accept", accept)); got.code != want || got.json["message"] == nil {
				t.Errorf("%s: got %d %s, want %d", body, got.code, got.text, want)
			}
		}
	}
	stream, err := pb.NewAdminClient(r.dial(writeToken, insecure.NewCredentials())).ResetMatching(t.Context(), &pb.ResetRequest{Domain: "shop", Descriptors: annOverGRPC})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("got %v", err)
	}
}
