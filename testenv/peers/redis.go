package peers

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// redis keeps a queue in a sorted set. Members begin with a number, because a set has each value
// once, and so that those of equal score come oldest first. The library pipelines the commands of
// all clients over a few connections.
func redis() Peer {
	program, missing := find("redis-server")
	return Peer{
		Name: "Redis", Missing: missing,
		Start: func(tb testing.TB, folder string) *Server {
			port := freePort(tb)
			s := start(tb, port, nil, program,
				"--bind", "127.0.0.1", "--port", port, "--dir", folder,
				"--save", "", "--appendonly", "yes", "--appendfsync", "always")
			connect := func(connections int) (rueidis.Client, error) {
				return rueidis.NewClient(rueidis.ClientOption{
					InitAddress:       []string{s.address},
					DisableCache:      true,
					PipelineMultiplex: bits.Len(uint(connections - 1)), // a power of two
				})
			}

			s.await(func() error {
				client, err := connect(1)
				if err != nil {
					return err
				}
				defer client.Close()

				// This fails while the server loads its data.
				return client.Do(tb.Context(), client.B().Ping().Build()).Error()
			})

			s.Connect = func(clients, connections, priorities int) []*Client {
				client, err := connect(connections)
				must(tb, err)
				s.onStop(client.Close)
				return slices.Repeat([]*Client{redisClient(client, queueName(priorities))}, clients)
			}

			return s
		},
	}
}

// reserve moves the first items to those under way, with the time until which they are leased.
var reserve = rueidis.NewLuaScript(`
local popped = redis.call('ZPOPMIN', KEYS[1], ARGV[1])
local items = {}
for i = 1, #popped, 2 do
  redis.call('ZADD', KEYS[2], ARGV[2], popped[i])
  items[#items + 1] = popped[i]
end
return items`)

var members atomic.Int64

// memberPrefix is the length of the number before a value.
const memberPrefix = 16

func redisClient(client rueidis.Client, key string) *Client {
	working := key + ":working"
	valueOf := func(member string) []byte { return []byte(member[memberPrefix:]) }
	return &Client{
		Push: func(ctx context.Context, items []Item) error {
			add := client.B().Zadd().Key(key).ScoreMember()
			for _, item := range items {
				member := fmt.Sprintf("%0*d%s", memberPrefix, members.Add(1), item.Value)
				add = add.ScoreMember(float64(item.Priority), member)
			}
			return client.Do(ctx, add.Build()).Error()
		},
		Pop: func(ctx context.Context, n int) ([][]byte, error) {
			pop := client.B().Zpopmin().Key(key).Count(int64(n)).Build()
			items, err := client.Do(ctx, pop).AsZScores()
			if err != nil {
				return nil, err
			}
			return values(items, func(item rueidis.ZScore) []byte { return valueOf(item.Member) })
		},
		Work: func(ctx context.Context, n int) ([][]byte, error) {
			until := strconv.FormatInt(time.Now().Add(leaseTime).UnixMilli(), 10)
			arguments := []string{strconv.Itoa(n), until}
			items, err := reserve.Exec(ctx, client, []string{key, working}, arguments).AsStrSlice()
			if err == nil && len(items) > 0 {
				remove := client.B().Zrem().Key(working).Member(items...).Build()
				err = client.Do(ctx, remove).Error()
			}
			if err != nil {
				return nil, err
			}

			return values(items, valueOf)
		},
	}
}
