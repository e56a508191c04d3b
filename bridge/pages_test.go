package bridge_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// Every list with pages, read to its end with small limits, has all that was pushed, once and in
// order. Some of the values fill a page.
func TestPagesToTheEnd(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine testenv.Engine) {
		const n = 7
		clock := newSteppedClock()
		e := testenv.New(t, testenv.Options{
			Engine: engine, Bridge: clock.options,
			NATS: func(o *server.Options) { o.MaxPayload = 16 << 10 },
		})

		for _, kind := range kinds {
			books := map[subjects.State][]string{}
			for _, state := range []subjects.State{
				subjects.StateDone, subjects.StateLeased, subjects.StateDelayed,
				subjects.StateReady,
			} {
				for i := range n {
					clock.step(time.Second)
					value := strings.Repeat("x", []int{10, 2_000, 7_000}[i%3])
					if state == subjects.StateDone {
						id := finish(t, e, kind.push, kind.pop, value, "result")
						books[state] = slices.Insert(books[state], 0, id) // newest first
						continue
					}

					m := ok(t, e, kind.push, nil, value)
					pushed, err := subjects.ParseReply[subjects.Pushed](m.Data)
					must(t, err)
					books[state] = append(books[state], pushed.ID)
					books[""] = append(books[""], pushed.ID)
					if state != subjects.StateReady {
						token := leaseOne(t, e, kind.pop, `{"ack_wait":"1h"}`, value)
						if state == subjects.StateDelayed {
							acknowledge(t, e, token, `-NAK {"delay":"1h"}`)
						}
					}
				}
			}

			for state, want := range books {
				for limit := range 4 { // 0 is the default
					for _, match := range []string{"", "x"} {
						o := subjects.ItemsOptions{
							State: state, Limit: limit, Match: match, ValueBytes: 10_000,
						}
						what := fmt.Sprintf("%s %+v", kind.queue, o)
						wantPages(t, what, want, func(after string) (
							got []string, next *string,
						) {
							o.After = after
							p := parsed[subjects.ItemsPage](t, e, kind.queue+".items",
								string(o.Encode()))
							for _, item := range p.Items {
								got = append(got, item.ID)
							}
							return got, p.Next
						})
					}
				}
			}

			var ids []string
			for i := range n {
				id := fmt.Sprint("s", i)
				ids = append(ids, id)
				value, err := json.Marshal(make([]byte, []int{1, 4_000}[i%2]))
				must(t, err)
				setSchedule(t, e, kind.queue,
					fmt.Sprintf(`{"id":%q,"cron":"@daily","value":%s}`, id, value))
			}
			for limit := 1; limit <= 3; limit++ {
				wantPages(t, kind.queue+".schedules", ids, func(after string) (
					got []string, next *string,
				) {
					o := subjects.ListOptions{After: after, Limit: limit}
					p := parsed[subjects.ScheduleList](t, e, kind.queue+".schedules",
						string(o.Encode()))
					for _, s := range p.Schedules {
						got = append(got, s.ID)
					}
					return got, p.Next
				})
			}
		}
	})
}

// Lists of queues, over NATS and HTTP, read to their end with small limits, have each queue once.
func TestPagesOfQueuesToTheEnd(t *testing.T) {
	e := start(t, testenv.Options{})
	var names, both []string
	for i := range 7 {
		names = append(names, fmt.Sprint("jobs", i))
	}
	for _, kind := range []string{"pq", "q"} {
		for _, name := range names {
			ok(t, e, kind+"."+name+".push", nil, "")
			both = append(both, kind+"/"+name)
		}
	}

	for limit := 1; limit <= 3; limit++ {
		for _, kind := range []string{"pq", "q"} {
			wantPages(t, kind+".list", names, func(after string) (got []string, next *string) {
				o := subjects.ListOptions{After: after, Limit: limit}
				p := parsed[subjects.QueueList](t, e, kind+".list", string(o.Encode()))
				for _, q := range p.Queues {
					got = append(got, q.Queue)
				}
				return got, p.Next
			})
		}
		wantPages(t, "/queues", both, func(after string) (got []string, next *string) {
			return getQueues(t, e, fmt.Sprintf("limit=%d&after=%s", limit, after))
		})
	}
}

// A list goes on behind a page without queues, where many names were used once, over NATS and HTTP.
func TestPagesOfUnusedQueues(t *testing.T) {
	const unused = 10_500
	e := start(t, testenv.Options{})
	_, err := kv.Transact(t.Context(), e.DB, func(tx kv.Transaction) (struct{}, error) {
		for i := range unused {
			q, err := e.Keyspace.PriorityQueue(fmt.Sprintf("a%05d", i))
			must(t, err)
			tx.Set(q.Layout().ListKey(), tuple.Tuple{time.Now().UnixMicro()}.Pack())
		}
		return struct{}{}, nil
	})
	must(t, err)
	ok(t, e, "pq.jobs.push", nil, "")
	ok(t, e, "q.jobs.push", nil, "")

	first := parsed[subjects.QueueList](t, e, "pq.list", "")
	if len(first.Queues) > 0 || first.Next == nil || *first.Next != "a09999" {
		t.Errorf("first page: %+v", first)
	}
	wantPages(t, "pq.list", []string{"jobs"}, func(after string) (got []string, next *string) {
		o := subjects.ListOptions{After: after}
		p := parsed[subjects.QueueList](t, e, "pq.list", string(o.Encode()))
		for _, q := range p.Queues {
			got = append(got, q.Queue)
		}
		return got, p.Next
	})
	for limit := 1; limit <= 3; limit++ {
		wantPages(t, "/queues", []string{"pq/jobs", "q/jobs"}, func(after string) (
			got []string, next *string,
		) {
			return getQueues(t, e, fmt.Sprintf("limit=%d&after=%s", limit, after))
		})
	}
}

// getQueues gets a page of /queues.
func getQueues(t *testing.T, e *testenv.Env, query string) (got []string, next *string) {
	t.Helper()
	code, body := getPage(t, e.Bridge, http.MethodGet, "/queues?"+query)
	same(t, "/queues?"+query, code, http.StatusOK)
	var page struct {
		Queues []struct{ Kind, Queue string }
		Next   *string
	}
	must(t, json.Unmarshal([]byte(body), &page))
	for _, q := range page.Queues {
		got = append(got, q.Kind+"/"+q.Queue)
	}
	return got, page.Next
}

// wantPages reads pages until there is no next one, and compares what they have.
func wantPages(
	t *testing.T, what string, want []string, page func(after string) (got []string, next *string),
) {
	t.Helper()
	var all []string
	for after, more := "", true; more; {
		got, next := page(after)
		all, more = append(all, got...), next != nil
		if len(all) > len(want) {
			break
		}
		if more {
			after = *next
		}
	}
	if !slices.Equal(all, want) {
		t.Errorf("%s: %d of %d:\n%v, want\n%v", what, len(all), len(want), all, want)
	}
}
