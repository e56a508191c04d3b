package peers

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

// redis keeps a queue in a sorted set. Members begin with a number, because a set has each value
// once, and so that members of equal score come oldest first. A command alone has a connection of
// its own until the answer: without pipelining, the commands on a connection wait for each other.
// For the shared operations the library pipelines the commands of the clients on one connection.
func redis() Peer {
	program, missing := find("redis-server")
	return Peer{
		Name: "Redis", Missing: missing, Does: operations,
		command: func(_ *Server, folder, port string) *exec.Cmd {
			return harness.Command(program, "--bind", "127.0.0.1", "--port", port, "--dir", folder,
				"--save", "", "--appendonly", "yes", "--appendfsync", "always")
		},
		dial: func(s *Server, queue string, _ int) (func() (*Client, error), error) {
			option := rueidis.ClientOption{
				InitAddress:       []string{s.address},
				DisableCache:      true,
				PipelineMultiplex: -1, // one connection
			}
			shared, err := dialRedis(s, option)
			if err != nil {
				return nil, err
			}

			option.DisableAutoPipelining = true
			alone, err := dialRedis(s, option)
			return func() (*Client, error) {
				c := redisClient(alone, queue)
				c.Shared = redisClient(shared, queue)
				return c, nil
			}, err
		},
	}
}

// dialRedis fails while the server loads its data.
func dialRedis(s *Server, option rueidis.ClientOption) (rueidis.Client, error) {
	client, err := rueidis.NewClient(option)
	if err != nil {
		return nil, err
	}

	s.onStop(client.Close)
	return client, client.Do(s.tb.Context(), client.B().Ping().Build()).Error()
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
			return values(items, err, func(item rueidis.ZScore) []byte {
				return valueOf(item.Member)
			})
		},
		Work: func(ctx context.Context, n int) ([][]byte, error) {
			until := strconv.FormatInt(time.Now().Add(leaseTime).UnixMilli(), 10)
			arguments := []string{strconv.Itoa(n), until}
			items, err := reserve.Exec(ctx, client, []string{key, working}, arguments).AsStrSlice()
			if err == nil && len(items) > 0 {
				remove := client.B().Zrem().Key(working).Member(items...).Build()
				err = client.Do(ctx, remove).Error()
			}
			return values(items, err, valueOf)
		},
	}
}
