package main

import (
	"context"
	"fmt"
	"math/bits"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/bench"
)

// leaseTime is longer than any step.
const leaseTime = time.Minute

// redis keeps a queue in a sorted set. Members begin with a number, because a set has each
// value once, and so that those of equal score come oldest first.
func redis() bench.Peer {
	program, missing := find("redis-server")
	return bench.Peer{
		Name:    "Redis",
		Missing: missing,
		Relaxed: true,
		Choice: library("github.com/redis/rueidis") + ", which pipelines the commands of all clients over as many connections as the service's clients have; " +
			"ZADD and ZPOPMIN, for work a Lua script that moves the item to a set of what is under way, and ZREM",
		Notes: "appendonly yes, appendfsync always.",
		Start: func(ctx context.Context, dir string, relaxed bool) (bench.PeerServer, error) {
			fsync := "always"
			if relaxed {
				fsync = "no"
			}

			s, err := startServer(ctx, dir, "redis-server", syscall.SIGTERM, func(host, port string) []string {
				return []string{
					program, "--bind", host, "--port", port, "--dir", dir, "--save", "",
					"--appendonly", "yes", "--appendfsync", fsync,
				}
			})
			if err != nil {
				return nil, err
			}

			r := &redisServer{server: s}
			return r, s.awaitVersion(ctx, func() (string, error) {
				client, err := r.client(1)
				if err != nil {
					return "", err
				}
				defer client.Close()
				info, err := client.Do(ctx, client.B().Info().Section("server").Build()).ToString()
				return line(info, "redis_version:"), err
			})
		},
	}
}

type redisServer struct{ *server }

func (s *redisServer) client(connections int) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{
		InitAddress:       []string{s.address},
		DisableCache:      true,
		PipelineMultiplex: bits.Len(uint(connections - 1)), // a power of two
		Dialer:            net.Dialer{Timeout: time.Second},
	})
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

func member(value []byte) string {
	return fmt.Sprintf("%0*d", memberPrefix, members.Add(1)) + string(value)
}

func (s *redisServer) Connect(ctx context.Context, clients, connections, priorities int) ([]*bench.PeerClient, error) {
	client, err := s.client(connections)
	if err != nil {
		return nil, err
	}
	s.onStop(client.Close)

	key := "queue:" + strconv.Itoa(priorities)
	working := key + ":working"
	reserved := func(ctx context.Context, n int) ([]string, error) {
		until := strconv.FormatInt(time.Now().Add(leaseTime).UnixMilli(), 10)
		return reserve.Exec(ctx, client, []string{key, working}, []string{strconv.Itoa(n), until}).AsStrSlice()
	}
	values := func(members []string) (all [][]byte, err error) {
		for _, m := range members {
			all = append(all, []byte(m[memberPrefix:]))
		}
		if len(all) == 0 {
			err = bench.ErrEmpty
		}
		return all, err
	}

	c := &bench.PeerClient{
		Pushes: both, Pops: both, Works: both,
		Push: func(ctx context.Context, items []bench.PeerItem) error {
			add := client.B().Zadd().Key(key).ScoreMember()
			for _, item := range items {
				add = add.ScoreMember(float64(item.Priority), member(item.Value))
			}
			return client.Do(ctx, add.Build()).Error()
		},
		Pop: func(ctx context.Context, n int) ([][]byte, error) {
			items, err := client.Do(ctx, client.B().Zpopmin().Key(key).Count(int64(n)).Build()).AsZScores()
			if err != nil {
				return nil, err
			}
			members := make([]string, len(items))
			for i := range items {
				members[i] = items[i].Member
			}
			return values(members)
		},
		Work: func(ctx context.Context, n int) ([][]byte, error) {
			items, err := reserved(ctx, n)
			if err == nil && len(items) > 0 {
				err = client.Do(ctx, client.B().Zrem().Key(working).Member(items...).Build()).Error()
			}
			if err != nil {
				return nil, err
			}
			return values(items)
		},
	}
	return slices.Repeat([]*bench.PeerClient{c}, clients), nil
}
