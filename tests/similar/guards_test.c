/* server/similar/guards: questions with the same meaning in other words, and questions with another meaning. A large
 * table of pairs is in tests/bench/similar/similar_pairs.py. The pairs here show the purpose of each guard. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "server/similar/guards.h"
#include "server/similar/words.h"

#include <stdlib.h>
#include <string.h>

struct pair {
    const char *a, *b;
};

static void check(const char *a, const char *b, enum guard wanted)
{
    enum guard there = guard_differs(a, strlen(a), b, strlen(b)), back = guard_differs(b, strlen(b), a, strlen(a));
    if (there != wanted || back != wanted)
        fail_msg("\"%s\" and \"%s\": %s and, turned round, %s instead of %s", a, b, guard_name(there), guard_name(back),
                 guard_name(wanted));
}

static void the_same_in_other_words_passes(void **state)
{
    static const struct pair pairs[] = {
        {"Explain reinforcement learning.", "What is reinforcement learning?"},
        {"Describe benefits of meditation.", "Tell me about the advantages of meditating."},
        {"What are the benefits of meditation?", "Can you please list some meditation benefits?"},
        {"How do I reset my password?", "How can I reset my password"},
        {"what's the capital of France", "What is France's capital?"},
        {"what’s the capital of France", "WHAT IS THE CAPITAL OF FRANCE"},
        {"Give me a summary of climate change effects.", "Summarize the effects of climate change"},
        {"Convert 1,000 km to miles", "convert 1000 kilometers to miles"},
        {"What is two plus three?", "What is 2 plus 3?"},
        {"Is it two hundred thousand or twenty-five?", "Is it 200,000 or 25?"},
        {"Is it 5 million or 6", "Is it 5,000,000 or 6?"},
        {"Flights to London from Paris", "Flights from Paris to London"},
        {"difference between cats and dogs", "What is the difference between dogs and cats?"},
        {"Why isn't my wifi working?", "Why is my wifi not working?"},
        {"Who is the baker of Alder Bay?", "Tell me who the baker of Alder Bay is"},
        {"What costs $5?", "What costs 5 dollars?"},
        {"dosage of 15mg", "Dosage of 15 milligrams?"},
        {"How does photosynthesis work?", "Explain how photosynthesis works."},
        {"What colour is grass?", "What is the color of grass?"},
        {"explain recursion", "Hello, please explain recursion, thanks!"},
        {"How to sort a list in Python", "In Python, how do I sort a list?"},
        {"I want to know what a monad is", "What is a monad?"},
        {"How can I learn to swim", "How do you learn to swim"},
        {"Could you please explain entropy?", "Explain entropy"},
        {"I'd like to know what entropy is", "what is entropy"},
        {"How many legs has a spider?", "How many legs does a spider have?"},
        {"How many seasons are there?", "how many seasons are there"},
        {"Explain gravity to me", "Explain gravity"},
        {"What advantages does it bring to have it", "what advantages does it bring to have it?"},
        {"What benefits does meditation have?", "What are the benefits of meditation?"},
        {"Who owned this newspaper?", "Tell me who owned this newspaper."},
        {"Will you explain entropy?", "Explain entropy"},
        {"Can you summarize recursion?", "Summarize recursion"},
        {"What does git branch -d do?", "Explain what git branch -d does"},
        {"How much is 5 Mb?", "how much is 5 Mb"},
        {"Is the file deleted?", "is the file deleted"},
        {"HOW DO I POLISH SILVER", "How do I polish silver?"},
        {"Tea or coffee?", "coffee or tea"},
        {"What are some ways to save money?", "What are ways to save money"},
        {"", "   "},
    };
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        check(pairs[i].a, pairs[i].b, GUARD_NONE);
}

static void each_guard_sees_what_it_is_for(void **state)
{
    static const struct {
        enum guard guard;
        struct pair pair;
    } rows[] = {
        {GUARD_NUMBERS, {"take 15 mg of aspirin", "take 50 mg of aspirin"}},
        {GUARD_NUMBERS, {"take fifteen mg of aspirin", "take fifty mg of aspirin"}},
        {GUARD_NUMBERS, {"python 3.1 release date", "python 3.10 release date"}},
        {GUARD_NUMBERS, {"price on 2024-01-05", "price on 2024-05-01"}},
        {GUARD_NUMBERS, {"what is -5 squared", "what is 5 squared"}},
        {GUARD_NAMES, {"weather in Oslo", "weather in Rome"}},
        {GUARD_NAMES, {"What is C++?", "What is C#?"}},
        {GUARD_NAMES, {"who directed Her", "who directed It"}},
        {GUARD_NAMES, {"what does foo_bar() do", "what does foo_baz() do"}},
        {GUARD_NAMES, {"what is on https://a.example/x?q=1", "what is on https://a.example/x?q=I"}},
        {GUARD_NAMES, {"what is \"he is\" in Latin", "what is \"she was\" in Latin"}},
        {GUARD_NAMES, {"Summarize this: I like cats", "Summarize this: I like dogs"}},
        {GUARD_NAMES, {"Summarize this\nI like it", "Summarize this\nI like them"}},
        {GUARD_UNITS, {"take 15 mg of aspirin", "take 15 g of aspirin"}},
        {GUARD_UNITS, {"boiling point in °C", "boiling point in °F"}},
        {GUARD_UNITS, {"what can I buy for $5", "what can I buy for €5"}},
        {GUARD_NEGATION, {"Is it safe to swim?", "Isn't it safe to swim?"}},
        {GUARD_NEGATION, {"Why is she happy", "Why is she unhappy"}},
        {GUARD_NEGATION, {"cake with sugar", "cake without sugar"}},
        {GUARD_POLARITY, {"How do I turn on wifi", "How do I turn off wifi"}},
        {GUARD_POLARITY, {"Who is the mayor?", "Who was the mayor?"}},
        {GUARD_POLARITY, {"What is my name?", "What is your name?"}},
        {GUARD_POLARITY, {"Who are you?", "Who am I?"}},
        {GUARD_DIRECTION, {"Convert 10 km to miles", "Convert 10 miles to km"}},
        {GUARD_DIRECTION, {"flights from Paris to London", "flights from London to Paris"}},
        {GUARD_DIRECTION, {"dog bites man", "man bites dog"}},
        {GUARD_DIRECTION, {"is 3 > 5", "is 5 > 3"}},
        {GUARD_DIRECTION, {"songs by them", "songs about them"}},
        {GUARD_DIRECTION, {"foods to eat and not to drink", "foods not to eat and to drink"}},
        {GUARD_LANGUAGE, {"Was ist Photosynthese und wie geht das?", "What is photosynthesis?"}},
        {GUARD_LANGUAGE, {"Что такое фотосинтез?", "What is photosynthesis?"}},
        {GUARD_WORDS, {"Do I have to pay?", "Do I pay?"}},
        {GUARD_WORDS, {"What does he have to eat?", "What does he eat?"}},
        {GUARD_WORDS, {"Explain mitosis", "Explain meiosis"}},
        {GUARD_WORDS, {"When was it founded by Romans", "Where was it founded by Romans"}},
        {GUARD_WORDS, {"What is 5 + 3", "What is 5 - 3"}},
        {GUARD_WORDS, {"What is 5 * (3 + 4)", "What is 5 * 3 + 4"}},
        {GUARD_WORDS, {"Translate hello to French", "Translate thanks to French"}},
        {GUARD_WORDS, {"What can you do?", "What can it do?"}},
        {GUARD_DIRECTION, {"光合作用是什么", "什么是光合作用"}},
        {GUARD_WORDS, {"red wine", "\xff\xfe wine"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check(rows[i].pair.a, rows[i].pair.b, rows[i].guard);
}

/* A question that goes on for longer than a similar one is understood is the same only where it has the same words. */
static void long_texts_differ_in_any_word(void **state)
{
    (void)state;
    static char a[65536], b[65536];
    size_t n = 0;
    while (n + 8 < sizeof a) {
        memcpy(a + n, "sheep, ", 7);
        n += 7;
    }
    memcpy(b, a, n);
    assert_int_equal(guard_differs(a, n, b, n - 1), GUARD_NONE);
    memcpy(b + n - 7, "goats", 5);
    assert_int_equal(guard_differs(a, n, b, n), GUARD_WORDS);
    memcpy(b + n - 7, "sheeP", 5);
    assert_int_equal(guard_differs(a, n, b, n), GUARD_WORDS);
    /* The tables' worst: 64 KiB of one character, of every byte. */
    for (int c = 0; c < 256; c++) {
        memset(a, c, sizeof a);
        b[0] = (char)c;
        assert_in_range(guard_differs(a, sizeof a, b, 1), 0, N_GUARDS - 1);
    }
}

/* Little words count where they carry meaning. */
static void little_words_count_where_they_say_something(void **state)
{
    static const struct pair pairs[] = {
        {"What is vitamin a", "What is vitamin"},
        {"When was World War I fought?", "When was World War fought?"},
        {"How do I open a can", "How do I open it"},
        {"How do I write a will in Kenya", "How do I write in Kenya"},
        {"What is show business", "What is business"},
        {"Explain information theory", "Explain theory"},
        {"Explain term limits", "Explain limits"},
        {"What does he look for in a job", "What does he look at in a job"},
        {"How do I log in?", "How do I log?"},
        {"How do you say thanks", "How do you say hello"},
        {"Hello world in C", "world in C"},
        {"How are glasses made", "How is glass made"},
        {"Who loves him", "Who does he love"},
        {"Does she love him", "Does he love her"},
        {"Who owes me money", "To whom do I owe money"},
        {"why is it hot there", "why is it hot here"},
        {"Who eats lions", "Who do lions eat"},
        {"Can dogs eat grapes", "Do dogs eat grapes"},
        {"Should dogs eat grapes", "Do dogs eat grapes"},
        {"What should I eat", "What do I eat"},
        {"What can I eat", "What do I eat"},
        {"What would happen if the moon fell", "What happens if the moon fell"},
        {"Do you have kids", "Do I have kids"},
        {"Did you win the race", "Did I win the race"},
        {"flights in May for kids", "flights in May about kids"},
        {"Who has a dog", "Who is a dog"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (guard_differs(pairs[i].a, strlen(pairs[i].a), pairs[i].b, strlen(pairs[i].b)) == GUARD_NONE)
            fail_msg("\"%s\" and \"%s\" are held to be the same", pairs[i].a, pairs[i].b);
}

/* Pairs that another hand found to be answered by each other, and others of their kinds. */
static void small_differences_are_differences(void **state)
{
    static const struct pair pairs[] = {
        /* capitals */
        {"How many kilobytes is 100 Mb?", "How many kilobytes is 100 MB?"},
        {"How many kilobytes is 100 Mb?", "How many kilobytes is 100 mb?"},
        {"How many kilobytes is 100Mb?", "How many kilobytes is 100MB?"},
        {"How many kilobytes is 100 Mb?", "How many kilobytes is 100 megabytes?"},
        {"Is 5 Gb/s fast?", "Is 5 GB/s fast?"},
        {"How much is 5 mW?", "How much is 5 MW?"},
        {"What does git branch -d do?", "What does git branch -D do?"},
        {"What does grep -i do?", "What does grep -I do?"},
        {"What does tar -xzf do", "What does tar -xZf do"},
        {"What does ls --All do", "What does ls --all do"},
        {"What does the key d do in vim?", "What does the key D do in vim?"},
        {"What does getItem return", "What does getitem return"},
        {"What is in /etc/Foo.conf", "What is in /etc/foo.conf"},
        {"Who makes polish?", "Who makes Polish?"},
        {"How do I go there?", "How do I Go there?"},
        {"What are aids?", "What are AIDS?"},
        /* tenses */
        {"Who owns this newspaper?", "Who owned this newspaper?"},
        {"Who owns this newspaper?", "Who will own this newspaper?"},
        {"Who runs the company?", "Who ran the company?"},
        {"Who makes the best bread?", "Who made the best bread?"},
        {"What does she write?", "What did she write?"},
        {"What does he build?", "What is he building?"},
        {"Who wins the race?", "Who has won the race?"},
        {"Who won the race?", "Who has won the race?"},
        {"Does the train stop here?", "Did the train stop here?"},
        {"Is the shop open?", "Will the shop be open?"},
        {"Is the meeting cancelled?", "Was the meeting cancelled?"},
        {"Has he eaten?", "Had he eaten?"},
        {"Who hit the car?", "Who hits the car?"},
        /* voice */
        {"Is the file being deleted?", "Is the file deleted?"},
        {"Has the file deleted?", "Has the file been deleted?"},
        {"Who hired Anna?", "Who was hired Anna?"},
        {"Who pays?", "Who is paid?"},
        {"Who invited?", "Who was invited?"},
        {"Which dogs trained?", "Which dogs are trained?"},
        /* this, some, any, the */
        {"Are these mushrooms edible?", "Are mushrooms edible?"},
        {"Are the mushrooms edible?", "Are mushrooms edible?"},
        {"Are some mushrooms edible?", "Are mushrooms edible?"},
        {"Are some mushrooms edible?", "Are any mushrooms edible?"},
        {"Is this mushroom edible?", "Is that mushroom edible?"},
        {"Is any mushroom edible?", "Is a mushroom edible?"},
        {"How heavy is this dog?", "How heavy is a dog?"},
        {"Is it very cold in Oslo?", "Is it cold in Oslo?"},
        {"Are all of the dogs loyal?", "Are the dogs loyal?"},
        {"Is one of the dogs loyal?", "Is the dog loyal?"},
        {"Is my file deleted?", "Is the file deleted?"},
        /* modals */
        {"Can I park here?", "Could I park here?"},
        {"Can I park here?", "May I park here?"},
        {"Should I park here?", "Must I park here?"},
        {"Should I park here?", "Can I park here?"},
        {"It might rain today", "It can rain today"},
        {"Can you swim?", "Do you swim?"},
        {"Would you go there?", "Could you go there?"},
        {"How can dogs swim?", "How do dogs swim?"},
        /* what comes first */
        {"How do I commit and push?", "How do I push and commit?"},
        {"Can I eat and swim?", "Can I swim and eat?"},
        {"wash and dry the car", "dry and wash the car"},
        {"Stop and start the server", "Start and stop the server"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (guard_differs(pairs[i].a, strlen(pairs[i].a), pairs[i].b, strlen(pairs[i].b)) == GUARD_NONE ||
            guard_differs(pairs[i].b, strlen(pairs[i].b), pairs[i].a, strlen(pairs[i].a)) == GUARD_NONE)
            print_error("\"%s\" and \"%s\" are held to be the same\n", pairs[i].a, pairs[i].b);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (guard_differs(pairs[i].a, strlen(pairs[i].a), pairs[i].b, strlen(pairs[i].b)) == GUARD_NONE)
            fail_msg("\"%s\" and \"%s\"", pairs[i].a, pairs[i].b);
}

/* Kinds of hashes are apart: 'x' and "me" once were 'w' and "be". */
static void a_word_of_one_kind_is_none_of_another(void **state)
{
    (void)state;
    for (int a = 1; a < 128; a++)
        for (int b = 1; b < 128; b++)
            assert_true(word_hash('x', (char[]){(char)a, 'e'}, 2) != word_hash('w', (char[]){(char)b, 'e'}, 2));
    assert_int_equal(word_look_up("me", 2).flags, 0);
}

static void endings_are_cut(void **state)
{
    static const struct pair words[] = {{"meditating", "meditation"}, {"running", "run"},     {"adding", "add"},
                                        {"studies", "study"},         {"boxes", "box"},       {"treatment", "treat"},
                                        {"making", "make"},           {"diseases", "disease"}};
    static const struct pair others[] = {
        {"station", "state"}, {"version", "verse"}, {"mission", "miss"}, {"gas", "ga"}, {"string", "str"}};
    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        assert_true(word_look_up(words[i].a, strlen(words[i].a)).concept ==
                    word_look_up(words[i].b, strlen(words[i].b)).concept);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_true(word_look_up(others[i].a, strlen(others[i].a)).concept !=
                    word_look_up(others[i].b, strlen(others[i].b)).concept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_in_other_words_passes),
        cmocka_unit_test(each_guard_sees_what_it_is_for),
        cmocka_unit_test(long_texts_differ_in_any_word),
        cmocka_unit_test(little_words_count_where_they_say_something),
        cmocka_unit_test(small_differences_are_differences),
        cmocka_unit_test(a_word_of_one_kind_is_none_of_another),
        cmocka_unit_test(endings_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
