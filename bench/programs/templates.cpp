// SPDX-License-Identifier: Apache-2.0
/*
 * templates.cpp - a few seconds of real work for the C++ compiler, which is the program that `make demo` measures.
 *
 * A units library, tensors with expression templates, visitors over variants, and a parser built from combinators, each
 * instantiated for many types, as header-only libraries make every user's compiler do. It needs nothing but g++ and its
 * standard library, and is only compiled, never run.
 */
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace units {

template <int Length, int Mass, int Time>
struct Quantity {
    double value;

    friend constexpr Quantity operator+(Quantity a, Quantity b) { return {a.value + b.value}; }
    friend constexpr Quantity operator-(Quantity a, Quantity b) { return {a.value - b.value}; }
    friend constexpr bool operator<(Quantity a, Quantity b) { return a.value < b.value; }
};

template <int L1, int M1, int T1, int L2, int M2, int T2>
constexpr auto operator*(Quantity<L1, M1, T1> a, Quantity<L2, M2, T2> b) {
    return Quantity<L1 + L2, M1 + M2, T1 + T2>{a.value * b.value};
}

template <int L1, int M1, int T1, int L2, int M2, int T2>
constexpr auto operator/(Quantity<L1, M1, T1> a, Quantity<L2, M2, T2> b) {
    return Quantity<L1 - L2, M1 - M2, T1 - T2>{a.value / b.value};
}

template <int N>
constexpr auto power(Quantity<1, 0, -1> speed) {
    if constexpr (N == 0)
        return Quantity<0, 0, 0>{1.0};
    else
        return speed * power<N - 1>(speed);
}

template <int... N>
constexpr double all_powers(std::integer_sequence<int, N...>) {
    return (power<N>(Quantity<1, 0, -1>{1.01}).value + ...);
}

static_assert(all_powers(std::make_integer_sequence<int, 60>{}) > 60);

} // namespace units

namespace tensor {

template <typename E, std::size_t N>
struct Expression {
    constexpr const E &self() const { return static_cast<const E &>(*this); }
    constexpr auto operator[](std::size_t i) const { return self().at(i); }
};

template <typename T, std::size_t N>
struct Vector : Expression<Vector<T, N>, N> {
    std::array<T, N> data{};

    constexpr T at(std::size_t i) const { return data[i]; }
    template <typename E>
    constexpr Vector &operator=(const Expression<E, N> &from) {
        for (std::size_t i = 0; i < N; i++)
            data[i] = static_cast<T>(from[i]);
        return *this;
    }
};

template <typename A, typename B, typename Op, std::size_t N>
struct Binary : Expression<Binary<A, B, Op, N>, N> {
    const A &a;
    const B &b;

    constexpr Binary(const A &first, const B &second) : a(first), b(second) {}
    constexpr auto at(std::size_t i) const { return Op{}(a.at(i), b.at(i)); }
};

template <typename A, typename B, std::size_t N>
constexpr auto operator+(const Expression<A, N> &a, const Expression<B, N> &b) {
    return Binary<A, B, std::plus<>, N>(a.self(), b.self());
}

template <typename A, typename B, std::size_t N>
constexpr auto operator*(const Expression<A, N> &a, const Expression<B, N> &b) {
    return Binary<A, B, std::multiplies<>, N>(a.self(), b.self());
}

template <typename A, typename B, std::size_t N>
constexpr auto operator-(const Expression<A, N> &a, const Expression<B, N> &b) {
    return Binary<A, B, std::minus<>, N>(a.self(), b.self());
}

template <typename T, std::size_t N>
T mixed() {
    Vector<T, N> a, b, c, d;
    d = a * b + b * c - c * a + a * a * b - c * c;
    d = d * (a + b) * (b - c) + d * d - a * (b + c * d);
    return d[N - 1];
}

template <typename T, std::size_t... N>
double sizes(std::index_sequence<N...>) {
    return (static_cast<double>(mixed<T, N + 1>()) + ...);
}

template <typename... T>
double types() {
    return (sizes<T>(std::make_index_sequence<3>{}) + ...);
}

double all() { return types<int, double>(); }

} // namespace tensor

namespace shapes {

template <int N>
struct Shape {
    std::string name = "shape-" + std::to_string(N);
    std::vector<std::pair<double, double>> corners;
    std::unique_ptr<Shape> inner;
};

template <int First, int... N>
auto variant_of(std::integer_sequence<int, N...>) -> std::variant<Shape<First + N>...>;

template <int First>
using Some = decltype(variant_of<First>(std::make_integer_sequence<int, 5>{}));

template <int First>
std::size_t corners(const std::vector<Some<First>> &all) {
    std::size_t count = 0;
    for (const auto &each : all)
        count += std::visit([](const auto &shape) { return shape.corners.size() + shape.name.size(); }, each);
    return count;
}

template <int First>
bool same(const Some<First> &a, const Some<First> &b) {
    return std::visit([](const auto &x, const auto &y) { return x.name == y.name && x.corners == y.corners; }, a, b);
}

template <int First>
std::map<std::string, std::vector<Some<First>>> by_name(std::vector<Some<First>> all) {
    std::map<std::string, std::vector<Some<First>>> found;
    for (auto &each : all) {
        auto name = std::visit([](const auto &shape) { return shape.name; }, each);
        found[name].push_back(std::move(each));
    }
    for (auto &[name, group] : found)
        std::sort(group.begin(), group.end(), [](const auto &a, const auto &b) { return a.index() < b.index(); });
    return found;
}

template <int... First>
std::size_t every(std::integer_sequence<int, First...>) {
    return (corners<First * 5>({}) + ...) + (by_name<First * 5>({}).size() + ...) +
           (static_cast<std::size_t>(same<First * 5>({}, {})) + ...);
}

std::size_t all() { return every(std::make_integer_sequence<int, 1>{}); }

} // namespace shapes

namespace parser {

template <typename T>
using Result = std::optional<std::pair<T, std::string_view>>;

template <char... Accepted>
constexpr auto one_of() {
    return [](std::string_view text) -> Result<char> {
        if (text.empty() || !((text[0] == Accepted) || ...))
            return std::nullopt;
        return std::pair{text[0], text.substr(1)};
    };
}

template <typename P, typename Q>
constexpr auto both(P first, Q second) {
    return [=](std::string_view text) {
        using A = typename decltype(first(text))::value_type::first_type;
        using B = typename decltype(second(text))::value_type::first_type;
        auto a = first(text);
        if (!a)
            return Result<std::pair<A, B>>{};
        auto b = second(a->second);
        if (!b)
            return Result<std::pair<A, B>>{};
        return Result<std::pair<A, B>>{{{a->first, b->first}, b->second}};
    };
}

template <typename P, typename Q>
constexpr auto either(P first, Q second) {
    return [=](std::string_view text) {
        auto a = first(text);
        return a ? a : second(text);
    };
}

template <typename P>
constexpr auto many(P each) {
    return [=](std::string_view text) {
        using A = typename decltype(each(text))::value_type::first_type;
        std::vector<A> found;
        for (auto next = each(text); next; next = each(text)) {
            found.push_back(std::move(next->first));
            text = next->second;
        }
        return Result<std::vector<A>>{{std::move(found), text}};
    };
}

template <int Depth>
constexpr auto nested() {
    constexpr auto digit = one_of<'0', '1', '2', '3', '4', '5', '6', '7', '8', '9'>();
    if constexpr (Depth == 0)
        return many(digit);
    else
        return many(both(one_of<'(', '['>(), both(nested<Depth - 1>(), either(one_of<')'>(), one_of<']'>()))));
}

template <int... Depth>
std::size_t depths(std::string_view text, std::integer_sequence<int, Depth...>) {
    return (nested<Depth>()(text)->second.size() + ...);
}

std::size_t all(std::string_view text) { return depths(text, std::make_integer_sequence<int, 3>{}); }

} // namespace parser

namespace registry {

template <typename K, typename V>
struct Table {
    std::unordered_map<K, std::shared_ptr<V>> by_key;
    std::multimap<std::size_t, std::weak_ptr<V>> by_size;
    std::vector<std::function<void(const K &, const V &)>> watchers;

    void put(K key, V value) {
        auto kept = std::make_shared<V>(std::move(value));
        by_size.emplace(sizeof(V), kept);
        for (const auto &watcher : watchers)
            watcher(key, *kept);
        by_key.insert_or_assign(std::move(key), std::move(kept));
    }
    std::optional<V> get(const K &key) const {
        auto at = by_key.find(key);
        return at == by_key.end() ? std::nullopt : std::optional<V>(*at->second);
    }
};

template <typename K, typename V>
bool used(K key, V value) {
    Table<K, V> table;
    table.watchers.push_back([seen = 0](const K &, const V &) mutable { seen++; });
    table.put(key, value);
    return table.get(key).has_value();
}

template <typename K, typename... V>
bool keyed(std::tuple<V...> values) {
    return std::apply([](auto... value) { return (used(K{}, value) && ...); }, values);
}

bool all() {
    auto values = std::make_tuple(1, std::string("two"), std::vector<int>{3});
    return keyed<std::string>(values);
}

} // namespace registry
